// JDBC against a running server: prepared statements beyond the point where the driver keeps them on the server, typed
// parameters in any time zone of the JVM, rows in parts, COPY, and what DatabaseMetaData asks of the catalog.
// Arguments: host, port, user, database. Prints what failed, and ends with an error if anything did.

import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.Array;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.TimeZone;

public class Jdbc {
    interface Check {
        void run() throws Exception;
    }

    static String url;
    static String table;
    static int failed = 0;

    static void check(String name, Check check) {
        try {
            check.run();
        } catch (Throwable error) {
            failed++;
            String state = error instanceof SQLException ? ((SQLException) error).getSQLState() + " " : "";
            System.out.println("-- " + name + " failed: " + state + error);
            for (StackTraceElement place : error.getStackTrace()) {
                if (place.getClassName().startsWith("Jdbc")) {
                    System.out.println("   line " + place.getLineNumber());
                }
            }
        }
    }

    static void equal(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static Connection connect(String options) throws SQLException {
        return DriverManager.getConnection(url + options);
    }

    /** The rows of a result, each a list of the texts of some columns. */
    static List<List<String>> rows(ResultSet result, String... columns) throws SQLException {
        List<List<String>> rows = new ArrayList<>();
        while (result.next()) {
            List<String> row = new ArrayList<>();
            for (String column : columns) {
                row.add(result.getString(column));
            }
            rows.add(row);
        }
        return rows;
    }

    static long number(Connection c, String sql) throws SQLException {
        try (Statement s = c.createStatement(); ResultSet r = s.executeQuery(sql)) {
            r.next();
            return r.getLong(1);
        }
    }

    static String text(Connection c, String sql) throws SQLException {
        try (Statement s = c.createStatement(); ResultSet r = s.executeQuery(sql)) {
            r.next();
            return r.getString(1);
        }
    }

    static void create(Connection c) throws SQLException {
        try (Statement s = c.createStatement()) {
            s.execute("DROP TABLE IF EXISTS " + table);
            s.execute("CREATE TABLE " + table + " (id BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, v DOUBLE PRECISION, "
                + "i INT, ts TIMESTAMP(3), tz TIMESTAMPTZ, n DECIMAL(10, 2), b BOOLEAN, y BYTEA, d DATE)");
        }
    }

    static final String INSERT = " (id, name, v, i, ts, tz, n, b, y, d) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    static final Instants NOON = new Instants();

    static class Instants {
        final OffsetDateTime instant = OffsetDateTime.of(2024, 2, 29, 12, 30, 45, 123_000_000, ZoneOffset.UTC);
        final LocalDateTime local = LocalDateTime.of(2024, 2, 29, 12, 30, 45, 123_000_000);
        final LocalDate day = LocalDate.of(2024, 2, 29);
    }

    static void set(PreparedStatement p, int id) throws SQLException {
        p.setLong(1, id);
        p.setString(2, "it's \\ " + id);
        if (id % 2 == 0) {
            p.setNull(3, Types.DOUBLE);
        } else {
            p.setDouble(3, id / 4.0);
        }
        p.setObject(4, id % 3 == 0 ? null : id, Types.INTEGER);
        p.setObject(5, NOON.local.plusSeconds(id));
        p.setObject(6, NOON.instant.plusSeconds(id));
        p.setBigDecimal(7, new BigDecimal("-1.25").multiply(BigDecimal.valueOf(id)));
        p.setBoolean(8, id % 3 == 0);
        p.setBytes(9, new byte[] {0, (byte) id, (byte) 255});
        p.setObject(10, NOON.day.plusDays(id));
    }

    static void same(ResultSet r, int id) throws SQLException {
        equal((long) id, r.getLong("id"));
        equal("it's \\ " + id, r.getString("name"));
        equal(id % 2 == 0 ? null : id / 4.0, r.getObject("v"));
        equal(id % 3 == 0 ? null : id, r.getObject("i"));
        equal(NOON.local.plusSeconds(id), r.getObject("ts", LocalDateTime.class));
        equal(NOON.instant.plusSeconds(id).toInstant(), r.getObject("tz", OffsetDateTime.class).toInstant());
        equal(new BigDecimal("-1.25").multiply(BigDecimal.valueOf(id)), r.getBigDecimal("n"));
        equal(id % 3 == 0, r.getBoolean("b"));
        equal(true, Arrays.equals(new byte[] {0, (byte) id, (byte) 255}, r.getBytes("y")));
        equal(NOON.day.plusDays(id), r.getObject("d", LocalDate.class));
    }

    /** One statement again and again: from the fifth time on the driver keeps it on the server and reads binary. */
    static void prepared(String options) throws SQLException {
        try (Connection c = connect(options)) {
            create(c);
            try (PreparedStatement p = c.prepareStatement("INSERT INTO " + table + INSERT)) {
                for (int id = 0; id < 12; id++) {
                    set(p, id);
                    equal(1, p.executeUpdate());
                }
            }
            String query = "SELECT * FROM " + table + " WHERE id = ? AND ts >= ? AND name <> ?";
            try (PreparedStatement p = c.prepareStatement(query)) {
                for (int id = 0; id < 12; id++) {
                    p.setLong(1, id);
                    p.setTimestamp(2, new Timestamp(0));
                    p.setString(3, "x");
                    try (ResultSet r = p.executeQuery()) {
                        equal(true, r.next());
                        same(r, id);
                        equal(false, r.next());
                    }
                }
            }
            try (PreparedStatement p = c.prepareStatement("DELETE FROM " + table + " WHERE id = ?")) {
                for (int id = 0; id < 12; id++) {
                    p.setLong(1, id);
                    equal(1, p.executeUpdate());
                }
            }
            equal(0L, number(c, "SELECT count(*) FROM " + table));
        }
    }

    /** The driver writes parameters into the text itself. */
    static void simple() throws SQLException {
        try (Connection c = connect("")) {
            fill(c, 10);
        }
        String sql = "SELECT id FROM " + table + " WHERE id = ? AND name = ? AND ts > ? AND n <= ? AND d = ?";
        try (Connection c = connect("&preferQueryMode=simple"); PreparedStatement p = c.prepareStatement(sql)) {
            for (int id = 0; id < 10; id++) {
                p.setLong(1, id);
                p.setString(2, "it's \\ " + id);
                p.setTimestamp(3, new Timestamp(0));
                p.setBigDecimal(4, BigDecimal.ZERO);
                p.setDate(5, Date.valueOf(NOON.day.plusDays(id)));
                equal(List.of(List.of("" + id)), rows(p.executeQuery(), "id"));
            }
        }
    }

    static void batches(String options) throws SQLException {
        try (Connection c = connect(options)) {
            create(c);
            try (PreparedStatement p = c.prepareStatement("INSERT INTO " + table + INSERT)) {
                for (int id = 0; id < 300; id++) {
                    set(p, id);
                    p.addBatch();
                }
                equal(300, p.executeBatch().length);
            }
            equal(300L, number(c, "SELECT count(*) FROM " + table));
            equal(44850L, number(c, "SELECT sum(id) FROM " + table));
            try (Statement s = c.createStatement(); ResultSet r = s.executeQuery("SELECT * FROM " + table + " ORDER BY id")) {
                for (int id = 0; r.next(); id++) {
                    same(r, id);
                }
            }
            try (PreparedStatement p = c.prepareStatement("INSERT INTO " + table + " (id, name) VALUES (?, ?)")) {
                p.setLong(1, 1000);
                p.setNull(2, Types.VARCHAR);
                p.addBatch();
                try {
                    p.executeBatch();
                    throw new AssertionError("a NULL was taken");
                } catch (BatchUpdateException error) {
                    equal("23502", error.getSQLState());
                }
            }
        }
    }

    /** The driver tells the server the zone of the JVM, and sends local dates and times in it. */
    static void zones() throws SQLException {
        TimeZone before = TimeZone.getDefault();
        String[] zones = {"UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "GMT+05:30", "GMT-03:00",
            "Etc/GMT+11", "Pacific/Apia"};
        try {
            for (String zone : zones) {
                TimeZone.setDefault(TimeZone.getTimeZone(zone));
                try (Connection c = connect("")) {
                    create(c);
                    Timestamp moment = Timestamp.from(NOON.instant.toInstant());
                    Date day = Date.valueOf("2024-02-29");
                    String sql = "INSERT INTO " + table + " (id, name, ts, tz, d) VALUES (?, 'x', ?, ?, ?)";
                    try (PreparedStatement p = c.prepareStatement(sql)) {
                        for (int id = 0; id < 7; id++) {
                            p.setLong(1, id);
                            p.setTimestamp(2, moment);
                            p.setTimestamp(3, moment);
                            p.setDate(4, day);
                            equal(1, p.executeUpdate());
                        }
                    }
                    // A fixed instant, and the wall clock of the zone.
                    equal(7L, number(c, "SELECT count(*) FROM " + table + " WHERE tz = '2024-02-29 12:30:45.123+00'"));
                    LocalDateTime wall = moment.toLocalDateTime();
                    equal(7L, number(c, "SELECT count(*) FROM " + table + " WHERE ts = '" + wall + "'"));
                    equal(7L, number(c, "SELECT count(*) FROM " + table + " WHERE d = '2024-02-29'"));
                    sql = "SELECT ts, tz, d FROM " + table + " WHERE ts = ? AND tz = ? AND d = ? AND id = ?";
                    try (PreparedStatement p = c.prepareStatement(sql)) {
                        for (int id = 0; id < 7; id++) {
                            p.setTimestamp(1, moment);
                            p.setTimestamp(2, moment);
                            p.setDate(3, day);
                            p.setInt(4, id);
                            try (ResultSet r = p.executeQuery()) {
                                equal(true, r.next());
                                equal(moment, r.getTimestamp(1));
                                equal(moment, r.getTimestamp(2));
                                equal(day, r.getDate(3));
                            }
                        }
                    }
                } catch (SQLException | AssertionError error) {
                    throw new AssertionError(zone + ": " + error.getMessage(), error);
                }
            }
        } finally {
            TimeZone.setDefault(before);
        }
    }

    static void arrays() throws SQLException {
        try (Connection c = connect("")) {
            fill(c, 20);
            String sql = "SELECT count(*) FROM " + table + " WHERE id = ANY(?) OR name = ANY(?)";
            try (PreparedStatement p = c.prepareStatement(sql)) {
                Array ids = c.createArrayOf("bigint", new Object[] {1L, 2L, 99L, null});
                Array names = c.createArrayOf("text", new Object[] {"it's \\ 7", "no", "a\"b,{}"});
                for (int time = 0; time < 7; time++) {
                    p.setArray(1, ids);
                    p.setArray(2, names);
                    try (ResultSet r = p.executeQuery()) {
                        r.next();
                        equal(3L, r.getLong(1));
                    }
                }
            }
        }
    }

    static void fill(Connection c, int count) throws SQLException {
        create(c);
        try (PreparedStatement p = c.prepareStatement("INSERT INTO " + table + INSERT)) {
            for (int id = 0; id < count; id++) {
                set(p, id);
                p.addBatch();
            }
            p.executeBatch();
        }
    }

    static void parts() throws SQLException {
        try (Connection c = connect("")) {
            fill(c, 25);
            c.setAutoCommit(false);
            try (Statement s = c.createStatement()) {
                s.setFetchSize(4);
                ResultSet r = s.executeQuery("SELECT id FROM " + table + " ORDER BY id");
                long sum = 0;
                while (r.next()) {
                    sum += r.getLong(1);
                    // Another statement between two parts.
                    equal(1L, number(c, "SELECT 1"));
                }
                equal(300L, sum);
            }
            c.commit();
            c.setAutoCommit(true);
            try (Statement s = c.createStatement()) {
                s.setMaxRows(3);
                equal(3, rows(s.executeQuery("SELECT id FROM " + table), "id").size());
            }
            try (Statement s = c.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY)) {
                ResultSet r = s.executeQuery("SELECT id FROM " + table + " ORDER BY id");
                r.last();
                equal(25, r.getRow());
                r.absolute(-2);
                equal(23L, r.getLong(1));
            }
            try (Statement s = c.createStatement()) {
                boolean isRows = s.execute("SELECT 1; SELECT 2; SELECT 3");
                int results = 0;
                for (; isRows || s.getUpdateCount() != -1; isRows = s.getMoreResults()) {
                    results++;
                }
                equal(3, results);
            }
        }
    }

    static void generatedKeys() throws SQLException {
        try (Connection c = connect("")) {
            create(c);
            String sql = "INSERT INTO " + table + " (id, name) VALUES (?, ?)";
            try (PreparedStatement p = c.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
                for (int id = 0; id < 7; id++) {
                    p.setLong(1, id);
                    p.setString(2, "x");
                    try {
                        equal(1, p.executeUpdate());
                        ResultSet keys = p.getGeneratedKeys();
                        equal(true, keys.next());
                        equal((long) id, keys.getLong(1));
                    } catch (SQLException error) {
                        // What is not there is refused by its name, and nothing is written.
                        equal("0A000", error.getSQLState());
                        equal(true, error.getMessage().contains("RETURNING"));
                        equal(0L, number(c, "SELECT count(*) FROM " + table));
                    }
                }
            }
        }
    }

    static void copies() throws Exception {
        try (Connection c = connect("")) {
            create(c);
            org.postgresql.copy.CopyManager copy = c.unwrap(org.postgresql.PGConnection.class).getCopyAPI();
            String lines = "100,\"a\nb\",1\n101,c,\n";
            equal(2L, copy.copyIn("COPY " + table + " (id, name, v) FROM STDIN WITH CSV", new StringReader(lines)));
            StringWriter written = new StringWriter();
            copy.copyOut("COPY (SELECT id, name, v FROM " + table + " ORDER BY id) TO STDOUT WITH CSV", written);
            equal(lines, written.toString());
        }
    }

    static void cancelled() throws SQLException {
        try (Connection c = connect(""); Statement s = c.createStatement()) {
            s.setQueryTimeout(1);
            long began = System.nanoTime();
            try {
                s.execute("SELECT count(*) FROM generate_series(1, 100000000) AS a(x), "
                    + "generate_series(1, 1000000) AS b(y) WHERE x + y = 0");
                throw new AssertionError("it was not cancelled");
            } catch (SQLException error) {
                equal("57014", error.getSQLState());
            }
            equal(true, System.nanoTime() - began < 20_000_000_000L);
            equal(1L, number(c, "SELECT 1"));
        }
    }

    static void descriptions() throws SQLException {
        try (Connection c = connect("")) {
            create(c);
            String sql = "SELECT id, name, n FROM " + table + " WHERE id = ? AND name = ? AND d = ?";
            try (PreparedStatement p = c.prepareStatement(sql)) {
                ResultSetMetaData columns = p.getMetaData();
                equal("int8", columns.getColumnTypeName(1));
                equal("text", columns.getColumnTypeName(2));
                equal("numeric", columns.getColumnTypeName(3));
                equal("n", columns.getColumnLabel(3));
                equal(false, columns.isAutoIncrement(1));
                ParameterMetaData parameters = p.getParameterMetaData();
                equal("int8", parameters.getParameterTypeName(1));
                equal("text", parameters.getParameterTypeName(2));
                equal("date", parameters.getParameterTypeName(3));
            }
            try (PreparedStatement p = c.prepareStatement("INSERT INTO " + table + " (id, n) VALUES (?, ?)")) {
                equal(null, p.getMetaData());
                equal("numeric", p.getParameterMetaData().getParameterTypeName(2));
            }
        }
    }

    static void sessions() throws SQLException {
        try (Connection c = connect("")) {
            equal(true, c.isValid(10));
            equal("public", c.getSchema());
            c.setSchema("public");
            c.setReadOnly(true);
            c.setReadOnly(false);
            c.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            equal(Connection.TRANSACTION_READ_COMMITTED, c.getTransactionIsolation());
            c.setClientInfo("ApplicationName", "tried");
            equal("tried", text(c, "SHOW application_name"));
        }
    }

    static void catalog() throws SQLException {
        try (Connection c = connect("")) {
            create(c);
            DatabaseMetaData m = c.getMetaData();
            equal("PostgreSQL", m.getDatabaseProductName());
            equal(List.of(List.of(table, "TABLE")),
                rows(m.getTables(null, "public", table, new String[] {"TABLE"}), "TABLE_NAME", "TABLE_TYPE"));
            equal(true, rows(m.getTables(null, null, null, null), "TABLE_NAME").size() > 50);
            List<List<String>> columns = rows(m.getColumns(null, "public", table, "%"),
                "COLUMN_NAME", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "IS_NULLABLE");
            equal(List.of("id", "int8", "19", "0", "NO"), columns.get(0));
            equal(List.of("name", "text", "2147483647", "0", "NO"), columns.get(1));
            equal(List.of("n", "numeric", "10", "2", "YES"), columns.get(6));
            equal(10, columns.size());
            equal(List.of(List.of("id", "1")),
                rows(m.getPrimaryKeys(null, "public", table), "COLUMN_NAME", "KEY_SEQ"));
            equal(List.of(List.of("id", "f")),
                rows(m.getIndexInfo(null, "public", table, false, false), "COLUMN_NAME", "NON_UNIQUE"));
            equal(List.of(List.of("id")),
                rows(m.getBestRowIdentifier(null, "public", table, DatabaseMetaData.bestRowSession, true), "COLUMN_NAME"));
            equal(0, rows(m.getImportedKeys(null, "public", table), "FKCOLUMN_NAME").size());
            equal(0, rows(m.getExportedKeys(null, "public", table), "FKCOLUMN_NAME").size());
            equal(0, rows(m.getCrossReference(null, "public", table, null, "public", table), "FKCOLUMN_NAME").size());
            rows(m.getUDTs(null, "public", "%", null), "TYPE_NAME");
            equal(true, rows(m.getSchemas(), "TABLE_SCHEM").contains(List.of("public")));
            equal(true, rows(m.getCatalogs(), "TABLE_CAT").contains(List.of(c.getCatalog())));
            equal(true, rows(m.getTableTypes(), "TABLE_TYPE").contains(List.of("TABLE")));
            equal(true, rows(m.getTypeInfo(), "TYPE_NAME").contains(List.of("int8")));
            equal(true, rows(m.getFunctions(null, null, "date_trunc"), "FUNCTION_NAME").size() > 0);
            rows(m.getFunctionColumns(null, null, "date_trunc", "%"), "COLUMN_NAME");
            rows(m.getProcedures(null, null, "%"), "PROCEDURE_NAME");
            rows(m.getVersionColumns(null, "public", table), "COLUMN_NAME");
            rows(m.getClientInfoProperties(), "NAME");
            equal(true, rows(m.getTablePrivileges(null, "public", table), "PRIVILEGE").contains(List.of("SELECT")));
            equal(true, rows(m.getColumnPrivileges(null, "public", table, "id"), "PRIVILEGE").contains(List.of("SELECT")));
            equal(true, m.getSQLKeywords().length() > 100);
            equal(63, m.getMaxColumnNameLength());
        }
    }

    public static void main(String[] arguments) throws Exception {
        url = "jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/" + arguments[3] + "?user=" + arguments[2];
        table = "jdbc_" + ProcessHandle.current().pid() + "_" + System.currentTimeMillis();
        check("prepared statements", () -> prepared(""));
        check("prepared statements, kept at once", () -> prepared("&prepareThreshold=1"));
        check("prepared statements, binary at once", () -> prepared("&prepareThreshold=-1"));
        check("simple queries", Jdbc::simple);
        check("batches", () -> batches(""));
        check("batches, rewritten", () -> batches("&reWriteBatchedInserts=true"));
        check("time zones", Jdbc::zones);
        check("arrays", Jdbc::arrays);
        check("rows in parts", Jdbc::parts);
        check("generated keys", Jdbc::generatedKeys);
        check("copies", Jdbc::copies);
        check("a time-out", Jdbc::cancelled);
        check("descriptions", Jdbc::descriptions);
        check("sessions", Jdbc::sessions);
        check("the catalog", Jdbc::catalog);
        try (Connection c = connect(""); Statement s = c.createStatement()) {
            s.execute("DROP TABLE IF EXISTS " + table);
        }
        System.exit(failed == 0 ? 0 : 1);
    }
}

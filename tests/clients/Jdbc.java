import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Statement;
import java.sql.Timestamp;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;

/** PostgreSQL's JDBC driver against a running server. Arguments: host, port, user, database; prints what failed. */
public class Jdbc {
  interface Work {
    void run() throws Exception;
  }

  static int failed = 0;
  static Connection connection;

  static void test(String name, Work work) throws Exception {
    try {
      work.run();
    } catch (Throwable error) {
      failed++;
      System.out.println("-- " + name + ": " + error);
      if (!connection.getAutoCommit()) {
        connection.rollback();
        connection.setAutoCommit(true);
      }
    }
  }

  static void same(Object got, Object wanted) {
    if (!String.valueOf(got).equals(String.valueOf(wanted))) {
      throw new AssertionError("got " + got + ", wanted " + wanted);
    }
  }

  static List<String> column(ResultSet rows, String name) throws Exception {
    List<String> all = new ArrayList<>();
    while (rows.next()) {
      all.add(rows.getString(name));
    }
    return all;
  }

  static int count(ResultSet rows) throws Exception {
    int count = 0;
    while (rows.next()) {
      count++;
    }
    return count;
  }

  public static void main(String[] arguments) throws Exception {
    String url = "jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/" + arguments[3] + "?user=" + arguments[2];
    Connection c = DriverManager.getConnection(url);
    connection = c;
    Statement s = c.createStatement();
    String table = "jdbc_" + System.nanoTime();
    s.execute("CREATE TABLE " + table + " (id BIGINT, name TEXT, v DOUBLE, ts TIMESTAMP(3) TIME INDEX, d DATE, "
        + "tz TIMESTAMPTZ, PRIMARY KEY (id)) PARTITION BY HASH (id) PARTITIONS 2");
    Timestamp noon = Timestamp.from(OffsetDateTime.parse("2024-07-01T12:00:00Z").toInstant());

    // From the fifth execution on the driver prepares on the server, and describes the statement.
    test("single prepared inserts", () -> {
      PreparedStatement p = c.prepareStatement("INSERT INTO " + table + " (id, name, v, ts, d, tz) VALUES (?,?,?,?,?,?)");
      for (int i = 0; i < 12; i++) {
        p.setLong(1, i);
        p.setString(2, "n" + i);
        p.setDouble(3, i / 2.0);
        p.setTimestamp(4, noon);
        p.setDate(5, Date.valueOf("2024-02-29"));
        p.setTimestamp(6, noon);
        same(p.executeUpdate(), 1);
      }
      same(count(s.executeQuery("SELECT id FROM " + table)), 12);
    });
    test("prepared queries", () -> {
      PreparedStatement p = c.prepareStatement("SELECT name, ts, d, tz FROM " + table + " WHERE id = ? AND tz <= ?");
      for (int i = 0; i < 10; i++) {
        p.setLong(1, i);
        p.setTimestamp(2, noon);
        ResultSet row = p.executeQuery();
        row.next();
        same(row.getString(1), "n" + i);
        // Whatever the zone of this machine is, times come back as they went.
        same(row.getTimestamp(2), noon);
        same(row.getObject(3, LocalDate.class), "2024-02-29");
        same(row.getObject(4, OffsetDateTime.class).toInstant(), noon.toInstant());
      }
    });
    test("setDate", () -> {
      PreparedStatement p = c.prepareStatement("SELECT id FROM " + table + " WHERE d = ?");
      p.setDate(1, Date.valueOf("2024-02-29"));
      same(count(p.executeQuery()), 12);
    });
    test("setArray", () -> {
      PreparedStatement p = c.prepareStatement("SELECT id FROM " + table + " WHERE id = ANY (?)");
      for (int i = 0; i < 7; i++) {
        p.setArray(1, c.createArrayOf("bigint", new Object[] {1L, 2L, 99L}));
        same(count(p.executeQuery()), 2);
      }
    });
    test("parameters in the select list", () -> {
      PreparedStatement p = c.prepareStatement("SELECT ?, ?::bigint");
      for (int i = 0; i < 7; i++) {
        p.setLong(1, 5);
        p.setLong(2, 6);
        ResultSet row = p.executeQuery();
        row.next();
        same(row.getLong(1) + row.getLong(2), 11);
      }
    });
    test("fetch size", () -> {
      c.setAutoCommit(false);
      PreparedStatement p = c.prepareStatement("SELECT id FROM " + table + " WHERE id >= ? ORDER BY id");
      p.setFetchSize(4);
      p.setLong(1, 2);
      same(count(p.executeQuery()), 10);
      c.commit();
      c.setAutoCommit(true);
    });
    test("read only", () -> {
      c.setReadOnly(true);
      c.setAutoCommit(false);
      String state = "";
      try {
        s.execute("INSERT INTO " + table + " (id, ts) VALUES (99, now())");
      } catch (java.sql.SQLException error) {
        state = error.getSQLState();
      }
      c.rollback();
      c.setAutoCommit(true);
      c.setReadOnly(false);
      same(state, "25006");
    });

    DatabaseMetaData m = c.getMetaData();
    test("getTables", () -> same(column(m.getTables(null, "public", table, null), "TABLE_NAME"), "[" + table + "]"));
    test("getColumns", () -> same(
        column(m.getColumns(null, "public", table, "%"), "COLUMN_NAME"), "[id, name, v, ts, d, tz]"));
    test("getPrimaryKeys", () -> same(
        column(m.getPrimaryKeys(null, "public", table), "COLUMN_NAME"), "[id, ts]"));
    test("getPrimaryKeys order", () -> same(
        column(m.getPrimaryKeys(null, "public", table), "KEY_SEQ"), "[1, 2]"));
    test("getIndexInfo", () -> same(
        column(m.getIndexInfo(null, "public", table, false, false), "COLUMN_NAME"), "[id, ts]"));
    test("getBestRowIdentifier", () -> same(
        column(m.getBestRowIdentifier(null, "public", table, 1, true), "COLUMN_NAME"), "[id, ts]"));
    test("getImportedKeys", () -> same(count(m.getImportedKeys(null, "public", table)), 0));
    test("getExportedKeys", () -> same(count(m.getExportedKeys(null, "public", table)), 0));
    test("getCrossReference", () -> same(count(m.getCrossReference(null, "public", table, null, "public", table)), 0));
    test("getVersionColumns", () -> m.getVersionColumns(null, "public", table));
    test("getTypeInfo", () -> {
      if (!column(m.getTypeInfo(), "TYPE_NAME").contains("int8")) {
        throw new AssertionError("no int8");
      }
    });
    test("getSchemas", () -> {
      if (!column(m.getSchemas(), "TABLE_SCHEM").contains("public")) {
        throw new AssertionError("no public");
      }
    });
    test("getFunctions", () -> count(m.getFunctions(null, null, "%")));
    test("getProcedures", () -> count(m.getProcedures(null, null, "%")));
    s.execute("DROP TABLE " + table);
    c.close();
    System.exit(failed == 0 ? 0 : 1);
  }
}

// JDBC with a password over TLS that verifies the server. Arguments: host, port, file of the authority. Ends with an
// error if anything failed.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;

public class Login {
    static Connection connect(String[] arguments, String password, String mode) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", "ann");
        properties.setProperty("password", password);
        properties.setProperty("sslmode", mode);
        properties.setProperty("sslrootcert", arguments[2]);
        properties.setProperty("loginTimeout", "20");
        return DriverManager.getConnection(
            "jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/public", properties);
    }

    static void refused(String[] arguments, String password, String mode, String state) {
        try {
            connect(arguments, password, mode).close();
        } catch (SQLException error) {
            if (state.equals(error.getSQLState())) {
                return;
            }
            throw new AssertionError("expected " + state + ", found " + error.getSQLState() + ": " + error);
        }
        throw new AssertionError("expected " + state + ", found a session");
    }

    public static void main(String[] arguments) throws SQLException {
        try (Connection connection = connect(arguments, "secret", "verify-full");
                Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery("SELECT current_user")) {
            rows.next();
            if (!"ann".equals(rows.getString(1))) {
                throw new AssertionError("signed in as " + rows.getString(1));
            }
        }
        refused(arguments, "wrong", "verify-full", "28P01");
        refused(arguments, "secret", "disable", "28000");
    }
}

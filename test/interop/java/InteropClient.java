import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Serves the interop tests with Apache Kafka's own clients: one JSON object a line on stdin, one
 * answer a line on stdout, matched by "id". Requests run in parallel. An answer holds "result", or
 * "exception" (class name) and "message". The commands are the methods of Producers, Admins,
 * Consumers and Loads. Ends when stdin ends.
 */
public final class InteropClient {
    static final ObjectMapper JSON = new ObjectMapper();

    private static final PrintStream OUT =
        new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private static JsonNode dispatch(JsonNode request) throws Exception {
        String command = request.get("command").asText();
        JsonNode result = Producers.handle(command, request);
        if (result == null) result = Consumers.handle(command, request);
        if (result == null) result = Admins.handle(command, request);
        if (result == null) result = Loads.handle(command, request);
        if (result == null) throw new IllegalArgumentException("unknown command " + command);
        return result;
    }

    private static void serve(String line) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            JsonNode request = JSON.readTree(line);
            answer.put("id", request.get("id").asLong());
            answer.set("result", dispatch(request));
        } catch (Throwable thrown) {
            Throwable cause = rootOf(thrown);
            answer.put("exception", cause.getClass().getName());
            answer.put("message", String.valueOf(cause.getMessage()));
        }
        String text = answer.toString();
        synchronized (OUT) {
            OUT.println(text);
            OUT.flush();
        }
    }

    /** Futures wrap what went wrong; the tests want the cause. */
    static Throwable rootOf(Throwable thrown) {
        boolean wrapped = thrown instanceof ExecutionException && thrown.getCause() != null;
        return wrapped ? thrown.getCause() : thrown;
    }

    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String request = line;
            pool.execute(() -> serve(request));
        }
        Runtime.getRuntime().halt(0);
    }

    static byte[] bytes(JsonNode base64) {
        return base64 == null || base64.isNull()
            ? null
            : java.util.Base64.getDecoder().decode(base64.asText());
    }

    static String base64(byte[] bytes) {
        return bytes == null ? null : java.util.Base64.getEncoder().encodeToString(bytes);
    }

    static java.util.Properties properties(JsonNode request) {
        java.util.Properties properties = new java.util.Properties();
        properties.put("bootstrap.servers", request.get("bootstrap").asText());
        JsonNode config = request.get("config");
        if (config != null) {
            config.fields()
                .forEachRemaining(e -> properties.put(e.getKey(), e.getValue().asText()));
        }
        return properties;
    }
}

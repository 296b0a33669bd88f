import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Named producers that live across requests. */
final class Producers {
    private static final Map<String, KafkaProducer<byte[], byte[]>> OPEN = new ConcurrentHashMap<>();

    static JsonNode handle(String command, JsonNode request) throws Exception {
        switch (command) {
            case "openProducer": return open(request);
            case "produce": return produce(request);
            case "transaction": return transaction(request);
            case "closeProducer": return close(request);
            case "tryProduce": return tryProduce(request);
            default: return null;
        }
    }

    private static KafkaProducer<byte[], byte[]> named(JsonNode request) {
        KafkaProducer<byte[], byte[]> producer = OPEN.get(request.get("name").asText());
        if (producer == null) throw new IllegalArgumentException("no such producer");
        return producer;
    }

    private static JsonNode open(JsonNode request) {
        Properties properties = new Properties();
        // Batches end where the caller flushes, nowhere else.
        properties.put("linger.ms", "10000");
        properties.put("batch.size", "1048576");
        properties.put("max.request.size", "4194304");
        properties.put("buffer.memory", "67108864");
        properties.put("max.block.ms", "15000");
        properties.put("request.timeout.ms", "10000");
        properties.put("delivery.timeout.ms", "30000");
        properties.putAll(InteropClient.properties(request));
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        if (properties.containsKey("transactional.id")) producer.initTransactions();
        OPEN.put(request.get("name").asText(), producer);
        return InteropClient.JSON.createObjectNode();
    }

    private static ProducerRecord<byte[], byte[]> record(JsonNode fields) {
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
            fields.get(0).asText(),
            fields.get(1).asInt(),
            fields.get(2).isNull() ? null : fields.get(2).asLong(),
            InteropClient.bytes(fields.get(3)),
            InteropClient.bytes(fields.get(4)));
        for (JsonNode header : fields.get(5)) {
            record.headers().add(header.get(0).asText(), InteropClient.bytes(header.get(1)));
        }
        return record;
    }

    private static JsonNode produce(JsonNode request) throws Exception {
        KafkaProducer<byte[], byte[]> producer = named(request);
        double retriesBefore = metric(producer, "record-retry-total");
        long start = System.nanoTime();
        ArrayNode results = InteropClient.JSON.createArrayNode();
        for (JsonNode batch : request.get("batches")) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode fields : batch) sent.add(producer.send(record(fields)));
            producer.flush();
            for (Future<RecordMetadata> future : sent) results.add(outcome(future));
        }
        ObjectNode answer = InteropClient.JSON.createObjectNode();
        answer.set("results", results);
        answer.put("elapsedMs", (System.nanoTime() - start) / 1_000_000);
        answer.put("retries", (long) (metric(producer, "record-retry-total") - retriesBefore));
        return answer;
    }

    private static ObjectNode outcome(Future<RecordMetadata> future) throws Exception {
        ObjectNode result = InteropClient.JSON.createObjectNode();
        try {
            RecordMetadata metadata = future.get();
            result.put("partition", metadata.partition());
            result.put("offset", metadata.offset());
        } catch (ExecutionException failed) {
            result.put("error", failed.getCause().getClass().getSimpleName());
            result.put("message", String.valueOf(failed.getCause().getMessage()));
        }
        return result;
    }

    private static JsonNode transaction(JsonNode request) {
        KafkaProducer<byte[], byte[]> producer = named(request);
        switch (request.get("action").asText()) {
            case "begin": producer.beginTransaction(); break;
            case "commit": producer.commitTransaction(); break;
            case "abort": producer.abortTransaction(); break;
            default: throw new IllegalArgumentException("unknown action");
        }
        return InteropClient.JSON.createObjectNode();
    }

    private static JsonNode close(JsonNode request) {
        KafkaProducer<byte[], byte[]> producer = named(request);
        OPEN.remove(request.get("name").asText());
        // A zero time-out ends it without telling the coordinator: a transaction stays open.
        producer.close(request.get("abandon").asBoolean() ? Duration.ZERO : Duration.ofSeconds(10));
        return InteropClient.JSON.createObjectNode();
    }

    private static double metric(KafkaProducer<?, ?> producer, String name) {
        return producer.metrics().values().stream()
            .filter(m -> m.metricName().name().equals(name))
            .filter(m -> m.metricName().group().equals("producer-metrics"))
            .mapToDouble(m -> ((Number) m.metricValue()).doubleValue())
            .sum();
    }

    private static JsonNode tryProduce(JsonNode request) throws Exception {
        Properties properties = InteropClient.properties(request);
        properties.put("max.block.ms", "10000");
        properties.put("delivery.timeout.ms", "20000");
        properties.put("request.timeout.ms", "10000");
        properties.put("linger.ms", "0");
        long start = System.nanoTime();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                request.get("topic").asText(),
                request.get("partition").asInt(),
                "key".getBytes(),
                "from java".getBytes());
            ObjectNode answer = outcome(producer.send(record));
            // One request, plus one for every time the record was queued again.
            answer.put("attempts", 1 + (long) metric(producer, "record-retry-total"));
            answer.put("elapsedMs", (System.nanoTime() - start) / 1_000_000);
            return answer;
        }
    }

    private Producers() {}
}

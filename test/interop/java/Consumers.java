import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads topics without a group. */
final class Consumers {
    private static final long READ_LIMIT_MS = 50_000;

    static JsonNode handle(String command, JsonNode request) {
        return command.equals("consume") ? consume(request) : null;
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode request) {
        Properties properties = InteropClient.properties(request);
        properties.put("enable.auto.commit", "false");
        properties.putIfAbsent("auto.offset.reset", "none");
        properties.putIfAbsent("fetch.max.wait.ms", "100");
        JsonNode isolation = request.get("isolation");
        if (isolation != null) properties.put("isolation.level", isolation.asText());
        return new KafkaConsumer<>(
            properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<TopicPartition> partitions(KafkaConsumer<?, ?> consumer, String topic) {
        return consumer.partitionsFor(topic).stream()
            .map(info -> new TopicPartition(topic, info.partition()))
            .collect(Collectors.toList());
    }

    /** Every record up to the end that each partition had at the start of the call. */
    private static JsonNode consume(JsonNode request) {
        ArrayNode records = InteropClient.JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            List<TopicPartition> all = partitions(consumer, request.get("topic").asText());
            Map<TopicPartition, Long> begin = consumer.beginningOffsets(all);
            Map<TopicPartition, Long> end = consumer.endOffsets(all);
            consumer.assign(all);
            for (TopicPartition partition : all) {
                JsonNode from = request.get("from").get(String.valueOf(partition.partition()));
                consumer.seek(partition, from == null ? begin.get(partition) : from.asLong());
            }
            Set<TopicPartition> left = new HashSet<>(all);
            long deadline = System.currentTimeMillis() + READ_LIMIT_MS;
            while (true) {
                // Positions pass over gaps and control batches, so they tell where the end is.
                left.removeIf(partition -> consumer.position(partition) >= end.get(partition));
                if (left.isEmpty()) break;
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("not at the end: " + left);
                }
                var polled = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    int partition = record.partition();
                    long limit = end.get(new TopicPartition(record.topic(), partition));
                    if (record.offset() < limit) records.add(fields(record));
                }
            }
        }
        ObjectNode answer = InteropClient.JSON.createObjectNode();
        answer.set("records", records);
        return answer;
    }

    private static ArrayNode fields(ConsumerRecord<byte[], byte[]> record) {
        ArrayNode fields = InteropClient.JSON.createArrayNode();
        fields.add(record.partition());
        fields.add(record.offset());
        fields.add(record.timestamp());
        fields.add(record.timestampType().name());
        fields.add(record.leaderEpoch().orElse(-1));
        fields.add(InteropClient.base64(record.key()));
        fields.add(InteropClient.base64(record.value()));
        ArrayNode headers = fields.addArray();
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(InteropClient.base64(header.value()));
        }
        return fields;
    }

    private Consumers() {}
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Load for the benchmarks: fills topics, and measures end-to-end latency at a steady rate. */
final class Loads {
    private static final int PAYLOADS = 4096;
    /** Neighbouring records of one partition, so that batches fill whatever the partition count. */
    private static final int RUN = 64;

    static JsonNode handle(String command, JsonNode request) throws Exception {
        switch (command) {
            case "fill": return fill(request);
            case "drain": return drain(request);
            case "latency": return latency(request);
            case "produceLatency": return produceLatency(request);
            default: return null;
        }
    }

    /** JSON-like records of exactly this size, which lz4 makes about half as large. */
    private static byte[][] payloads(int size) {
        SplittableRandom random = new SplittableRandom(42);
        String[] words = {
            "\"customer\":\"", "\",\"orderReference\":\"", "\",\"deliveryAddress\":\"",
            "\",\"warehouseLocation\":\"", "\",\"statusDescription\":\"waiting for approval ",
        };
        byte[][] result = new byte[PAYLOADS][];
        for (int i = 0; i < PAYLOADS; i++) {
            StringBuilder text = new StringBuilder("{");
            while (text.length() < size) {
                text.append(words[random.nextInt(words.length)]);
                for (int n = 0; n < 14; n++) text.append((char) ('0' + random.nextInt(75)));
            }
            result[i] = text.substring(0, size).getBytes(StandardCharsets.ISO_8859_1);
        }
        return result;
    }

    private static void awaitTime(long nanoTime) throws InterruptedException {
        long wait = nanoTime - System.nanoTime();
        if (wait > 0) TimeUnit.NANOSECONDS.sleep(wait);
    }

    /** Writes this many records, "rate" a second or, without it, as fast as it goes. */
    private static JsonNode fill(JsonNode request) throws Exception {
        Properties properties = InteropClient.properties(request);
        properties.put("compression.type", request.get("compression").asText());
        properties.put("batch.size", request.path("batchSize").asText("65536"));
        properties.put("linger.ms", "20");
        properties.put("buffer.memory", "134217728");
        String topic = request.get("topic").asText();
        int partitions = request.get("partitions").asInt();
        long records = request.get("records").asLong();
        double rate = request.path("rate").asDouble(0);
        byte[][] payloads = payloads(request.get("size").asInt());
        AtomicReference<Exception> failure = new AtomicReference<>();
        long start = System.nanoTime();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long i = 0; i < records && failure.get() == null; i++) {
                if (rate > 0 && i % RUN == 0) awaitTime(start + (long) (i * 1e9 / rate));
                int partition = (int) (i / RUN % partitions);
                byte[] value = payloads[(int) (i % PAYLOADS)];
                producer.send(new ProducerRecord<>(topic, partition, null, value), (m, e) -> {
                    if (e != null) failure.set(e);
                });
            }
            producer.flush();
        }
        if (failure.get() != null) throw failure.get();
        ObjectNode answer = InteropClient.JSON.createObjectNode();
        return answer.put("seconds", (System.nanoTime() - start) / 1e9);
    }

    /** Reads this many records of a topic from its beginning; the time is from the first poll. */
    private static JsonNode drain(JsonNode request) {
        long records = request.get("records").asLong();
        long seen = 0;
        long bytes = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = Consumers.consumer(request)) {
            List<TopicPartition> all =
                Consumers.partitions(consumer, request.get("topic").asText());
            consumer.assign(all);
            consumer.seekToBeginning(all);
            for (TopicPartition partition : all) consumer.position(partition);
            long start = System.nanoTime();
            long idleSince = start;
            while (seen < records) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    bytes += record.value().length;
                    seen++;
                    idleSince = System.nanoTime();
                }
                if (System.nanoTime() - idleSince > 30_000_000_000L) {
                    throw new IllegalStateException(seen + " of " + records + " records found");
                }
            }
            ObjectNode answer = InteropClient.JSON.createObjectNode();
            answer.put("bytes", bytes);
            return answer.put("seconds", (System.nanoTime() - start) / 1e9);
        }
    }

    private static double quantile(List<Long> sorted, double q) {
        int index = (int) Math.min(sorted.size() - 1, Math.floor(q * sorted.size()));
        return sorted.get(index) / 1e6;
    }

    /**
     * Produces to the source at a steady rate and consumes at the destination, in this process, so
     * that one clock tells both times. What was sent during the warm-up is not counted.
     */
    private static JsonNode latency(JsonNode request) throws Exception {
        String topic = request.get("topic").asText();
        int rate = request.get("rate").asInt();
        long warmup = (long) (request.get("warmupSeconds").asDouble() * rate);
        long total = warmup + (long) (request.get("seconds").asDouble() * rate);
        Properties properties = InteropClient.properties(request);
        properties.put("linger.ms", "0");
        properties.put("acks", "all");
        List<Long> latencies = new ArrayList<>();
        CountDownLatch ready = new CountDownLatch(1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Thread reader = new Thread(() -> {
            try {
                receive(request, topic, warmup, total, latencies, ready);
            } catch (Throwable thrown) {
                failure.set(thrown);
                ready.countDown();
            }
        });
        reader.setDaemon(true);
        reader.start();
        ready.await(60, TimeUnit.SECONDS);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            long start = System.nanoTime();
            for (long i = 0; i < total && failure.get() == null; i++) {
                awaitTime(start + i * 1_000_000_000L / rate);
                ByteBuffer value = ByteBuffer.allocate(1024);
                value.putLong(i).putLong(System.nanoTime());
                producer.send(new ProducerRecord<>(topic, 0, null, value.array()));
            }
        }
        reader.join(30_000);
        if (failure.get() != null) throw new Exception(failure.get());
        if (latencies.size() != total - warmup) {
            String arrived = latencies.size() + " of " + (total - warmup) + " arrived";
            throw new IllegalStateException(arrived);
        }
        return quantiles(latencies);
    }

    private static JsonNode quantiles(List<Long> latencies) {
        Collections.sort(latencies);
        ObjectNode answer = InteropClient.JSON.createObjectNode();
        answer.put("records", latencies.size());
        answer.put("p50Ms", quantile(latencies, 0.5));
        answer.put("p99Ms", quantile(latencies, 0.99));
        return answer.put("maxMs", quantile(latencies, 1));
    }

    /** From before `send` to the acknowledgement by all in-sync replicas, at a steady rate. */
    private static JsonNode produceLatency(JsonNode request) throws Exception {
        String topic = request.get("topic").asText();
        int rate = request.get("rate").asInt();
        long warmup = (long) (request.get("warmupSeconds").asDouble() * rate);
        long total = warmup + (long) (request.get("seconds").asDouble() * rate);
        Properties properties = InteropClient.properties(request);
        properties.put("linger.ms", "0");
        properties.put("acks", "all");
        List<Long> latencies = Collections.synchronizedList(new ArrayList<>());
        AtomicReference<Exception> failure = new AtomicReference<>();
        byte[][] payloads = payloads(1024);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            long start = System.nanoTime();
            for (long i = 0; i < total && failure.get() == null; i++) {
                awaitTime(start + i * 1_000_000_000L / rate);
                boolean counts = i >= warmup;
                byte[] value = payloads[(int) (i % PAYLOADS)];
                long sent = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, 0, null, value), (m, e) -> {
                    if (e != null) failure.set(e);
                    else if (counts) latencies.add(System.nanoTime() - sent);
                });
            }
            producer.flush();
        }
        if (failure.get() != null) throw failure.get();
        return quantiles(latencies);
    }

    private static void receive(
            JsonNode request, String topic, long warmup, long total,
            List<Long> latencies, CountDownLatch ready) {
        ObjectNode destination = InteropClient.JSON.createObjectNode();
        destination.set("bootstrap", request.get("destination"));
        destination.putObject("config")
            .put("auto.offset.reset", "earliest")
            .put("fetch.max.wait.ms", "500");
        try (KafkaConsumer<byte[], byte[]> consumer = Consumers.consumer(destination)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            consumer.position(partition);
            ready.countDown();
            long idleSince = System.nanoTime();
            for (long seen = 0; seen < total; ) {
                var polled = consumer.poll(Duration.ofMillis(500));
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    long now = System.nanoTime();
                    ByteBuffer value = ByteBuffer.wrap(record.value());
                    if (value.getLong() >= warmup) latencies.add(now - value.getLong());
                    seen++;
                    idleSince = now;
                }
                if (System.nanoTime() - idleSince > 60_000_000_000L) {
                    throw new IllegalStateException("nothing arrived for a minute");
                }
            }
        }
    }

    private Loads() {}
}

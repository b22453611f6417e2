// Asks one query of a Skysail application, prints its answer as JSON, and reports the true label if one is given.
//
//     mvn dependency:copy-dependencies -DoutputDirectory=jars
//     java -cp "jars/*" Ask.java digits '[1, 2]' 1
//
// Avro's BinaryMessageEncoder writes and reads Skysail's framing by itself.
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.GenericRecordBuilder;
import org.apache.avro.message.BadHeaderException;
import org.apache.avro.message.BinaryMessageDecoder;
import org.apache.avro.message.BinaryMessageEncoder;
import org.apache.avro.message.MissingSchemaException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Ask {
    static final String BOOTSTRAP = env("BOOTSTRAP", "127.0.0.1:9092"), PREFIX = env("PREFIX", "skysail");
    static final String CONTEXT = System.getenv("CONTEXT");

    public static void main(String[] arguments) throws Exception {
        if (arguments.length < 2) throw new IllegalArgumentException("usage: Ask APPLICATION ROW [LABEL], a row such as '[1, 2]'");
        var truth = arguments.length > 2 ? Long.valueOf(arguments[2]) : null;
        try (var producer = new KafkaProducer<>(connected(), new StringSerializer(), new ByteArraySerializer());
                var consumer = new KafkaConsumer<byte[], byte[]>(connected(), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            follow(consumer, PREFIX + ".predictions");
            var query = query(arguments[0], arguments[1]);
            send(producer, "queries", query);
            var prediction = answer(consumer, query);
            if (truth != null) {
                var feedback = new GenericRecordBuilder(schema("Feedback"))
                        .set("query_id", query.get("query_id")).set("label", truth).set("sent_us", now()).build();
                send(producer, "feedback", feedback);
            }
            var shown = new ArrayList<String>();
            for (var field : List.of("query_id", "status", "reason", "message", "answer")) {
                shown.add("\"" + field + "\": " + GenericData.get().toString(prediction.get(field)));
            }
            System.out.println("{" + String.join(", ", shown) + "}");
        }
    }

    /** Make a query about a row of numbers, such as `[1, 2]`. */
    static GenericRecord query(String application, String row) {
        var numbers = row.replaceAll("[\\[\\]\\s]", "").split(",");
        var data = ByteBuffer.allocate(4 * numbers.length).order(ByteOrder.LITTLE_ENDIAN);
        for (var number : numbers) data.putFloat(Float.parseFloat(number));
        var schema = schema("Query");
        var tensor = schema.getField("input").schema().getTypes().get(0);
        var input = new GenericRecordBuilder(tensor)
                .set("dtype", new GenericData.EnumSymbol(tensor.getField("dtype").schema(), "float32"))
                .set("shape", List.of(numbers.length)).set("data", data.flip()).build();
        return new GenericRecordBuilder(schema)
                .set("query_id", UUID.randomUUID().toString()).set("application", application).set("input", input)
                .set("context", CONTEXT).set("sent_us", now()).set("reply_token", UUID.randomUUID().toString()).build();
    }

    /** Write a record under its query's key: Kafka's own partitioner puts queries and feedback beside each other. */
    static void send(KafkaProducer<String, byte[]> producer, String topic, GenericRecord record) throws Exception {
        var key = CONTEXT != null ? CONTEXT : record.get("query_id").toString();
        var bytes = new BinaryMessageEncoder<GenericRecord>(GenericData.get(), record.getSchema()).encode(record);
        var value = new byte[bytes.remaining()];
        bytes.get(value);
        producer.send(new ProducerRecord<>(PREFIX + "." + topic, key, value)).get();
    }

    /** Read all partitions from where they end now, without a group: every client sees every answer. */
    static void follow(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        var places = new ArrayList<TopicPartition>();
        consumer.partitionsFor(topic).forEach(found -> places.add(new TopicPartition(topic, found.partition())));
        consumer.assign(places);
        consumer.seekToEnd(places);
        places.forEach(consumer::position);
    }

    static GenericRecord answer(KafkaConsumer<byte[], byte[]> consumer, GenericRecord query) throws Exception {
        var decoder = new BinaryMessageDecoder<GenericRecord>(GenericData.get(), schema("Prediction"));
        var end = System.nanoTime() + 1_000_000L * Long.parseLong(env("TIMEOUT_MS", "10000"));
        while (System.nanoTime() < end) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                GenericRecord found;
                try {
                    found = decoder.decode(record.value());
                } catch (BadHeaderException | MissingSchemaException strange) {
                    continue; // no prediction
                }
                if (is(query, found, "query_id") && is(query, found, "reply_token")) return found;
            }
        }
        throw new IllegalStateException("no prediction in time");
    }

    static boolean is(GenericRecord one, GenericRecord other, String field) {
        return one.get(field).toString().equals(other.get(field).toString());
    }

    static Schema schema(String name) {
        try {
            return new Schema.Parser().parse(new File(env("SCHEMAS", "../../schemas"), name + ".avsc"));
        } catch (java.io.IOException fault) {
            throw new java.io.UncheckedIOException(fault);
        }
    }

    static Properties connected() {
        var properties = new Properties();
        properties.putAll(Map.of("bootstrap.servers", BOOTSTRAP, "acks", "all", "enable.auto.commit", "false"));
        return properties;
    }

    static long now() {
        return System.currentTimeMillis() * 1_000;
    }

    static String env(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }
}

"""Reads a topic, or tries to produce to it, with librdkafka (confluent-kafka).

    client.py read BOOTSTRAP TOPIC ISOLATION [MAX_BYTES]
                                       one JSON array a record, in the order of arrival
    client.py produce BOOTSTRAP TOPIC  one JSON object: what became of one record
    client.py group BOOTSTRAP TOPIC GROUP COUNT
                                       reads so many records as a member of the group, commits
                                       behind them: one JSON array a record
"""

import base64
import json
import sys
import time

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

LIMIT_S = 50


def text(data):
    return None if data is None else base64.b64encode(data).decode()


def read(bootstrap, topic, isolation, max_bytes="1048576"):
    consumer = Consumer({
        "fetch.message.max.bytes": int(max_bytes),
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "fetch.wait.max.ms": 100,
        "check.crcs": True,
    })
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    left = set(partitions)
    deadline = time.monotonic() + LIMIT_S
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not at the end of {left}")
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            if message.error().code() != KafkaError._PARTITION_EOF:
                raise KafkaException(message.error())
            left.discard(message.partition())
            continue
        print(json.dumps(as_fields(message)))
    consumer.close()


def as_fields(message):
    headers = [[name, text(value)] for name, value in message.headers() or []]
    return [message.partition(), message.offset(), message.timestamp()[1],
            text(message.key()), text(message.value()), headers]


def group(bootstrap, topic, group_id, count):
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": group_id,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
    })
    consumer.subscribe([topic])
    after = {}
    deadline = time.monotonic() + LIMIT_S
    for number in range(int(count)):
        message = None
        while message is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{number} of {count} records")
            message = consumer.poll(0.2)
        if message.error():
            raise KafkaException(message.error())
        print(json.dumps(as_fields(message)))
        after[message.partition()] = message.offset() + 1
    positions = [TopicPartition(topic, p, offset) for p, offset in after.items()]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def produce(bootstrap, topic):
    requests = {}

    def on_statistics(statistics):
        for name, broker in json.loads(statistics)["brokers"].items():
            requests[name] = broker["req"].get("Produce", 0)

    outcome = {}

    def on_delivery(error, message):
        if error is None:
            outcome["offset"] = message.offset()
        else:
            outcome["error"] = error.name()
            outcome["message"] = error.str()

    producer = Producer({
        "bootstrap.servers": bootstrap,
        "message.timeout.ms": 15000,
        "statistics.interval.ms": 50,
        "stats_cb": on_statistics,
    })
    start = time.monotonic()
    producer.produce(
        topic, value=b"from librdkafka", key=b"key", partition=0, on_delivery=on_delivery)
    while not outcome and time.monotonic() < start + 20:
        producer.poll(0.05)
    outcome["elapsedMs"] = round((time.monotonic() - start) * 1000)
    producer.poll(0.2)  # statistics that include the last request
    outcome["attempts"] = sum(requests.values())
    print(json.dumps(outcome))


if __name__ == "__main__":
    if sys.argv[1] == "read":
        read(*sys.argv[2:6])
    elif sys.argv[1] == "group":
        group(*sys.argv[2:6])
    else:
        produce(*sys.argv[2:4])

// Command interop reads a topic, or tries to produce to it, with franz-go.
//
//	interop read BOOTSTRAP TOPIC ISOLATION [MAX_BYTES]
//	                                 one JSON array a record, in the order of arrival
//	interop produce BOOTSTRAP TOPIC  one JSON object: what became of one record
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	limit           = 50 * time.Second
	defaultMaxBytes = 1 << 20
)

// header is a name and a value; encoding/json writes []byte as base64 and nil as null.
type header [2]any

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// partitionEnds asks where each partition starts and ends now, by partition.
func partitionEnds(
	ctx context.Context, client *kgo.Client, topic string, isolation int8,
) (map[int32]int64, map[int32]int64, error) {
	metadataRequest := kmsg.NewPtrMetadataRequest()
	metadataTopic := kmsg.NewMetadataRequestTopic()
	metadataTopic.Topic = kmsg.StringPtr(topic)
	metadataRequest.Topics = append(metadataRequest.Topics, metadataTopic)
	metadata, err := metadataRequest.RequestWith(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	list := func(timestamp int64) (map[int32]int64, error) {
		request := kmsg.NewPtrListOffsetsRequest()
		request.ReplicaID = -1
		request.IsolationLevel = isolation
		requestTopic := kmsg.NewListOffsetsRequestTopic()
		requestTopic.Topic = topic
		for _, partition := range metadata.Topics[0].Partitions {
			requestPartition := kmsg.NewListOffsetsRequestTopicPartition()
			requestPartition.Partition = partition.Partition
			requestPartition.Timestamp = timestamp
			requestTopic.Partitions = append(requestTopic.Partitions, requestPartition)
		}
		request.Topics = append(request.Topics, requestTopic)
		offsets := map[int32]int64{}
		for _, shard := range client.RequestSharded(ctx, request) {
			if shard.Err != nil {
				return nil, shard.Err
			}
			for _, answered := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
				for _, partition := range answered.Partitions {
					if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
						return nil, err
					}
					offsets[partition.Partition] = partition.Offset
				}
			}
		}
		return offsets, nil
	}
	starts, err := list(-2)
	if err != nil {
		return nil, nil, err
	}
	ends, err := list(-1)
	return starts, ends, err
}

func read(bootstrap, topic, isolationName string, maxBytes int32) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	level, isolation := kgo.ReadUncommitted(), int8(0)
	if isolationName == "read_committed" {
		level, isolation = kgo.ReadCommitted(), int8(1)
	}
	plain, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...))
	if err != nil {
		return err
	}
	defer plain.Close()
	starts, ends, err := partitionEnds(ctx, plain, topic, isolation)
	if err != nil {
		return err
	}
	from := map[int32]kgo.Offset{}
	for partition, start := range starts {
		if start < ends[partition] {
			from[partition] = kgo.NewOffset().At(start)
		} else {
			delete(ends, partition)
		}
	}
	if len(from) == 0 {
		return nil
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(level),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.FetchMaxPartitionBytes(maxBytes),
		// Control records tell that the end was reached when it is a marker; not printed.
		kgo.KeepControlRecords(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	quiet := 0
	// The end may be a gap (compaction) or aborted data, which never arrive: quiet polls end it too.
	for len(ends) > 0 && quiet < 10 {
		pollCtx, pollCancel := context.WithTimeout(ctx, 150*time.Millisecond)
		fetches := client.PollFetches(pollCtx)
		pollCancel()
		if ctx.Err() != nil {
			return errors.New("did not reach the end in time")
		}
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				return failed.Err
			}
		}
		quiet++
		fetches.EachRecord(func(record *kgo.Record) {
			quiet = 0
			if end, open := ends[record.Partition]; open && record.Offset >= end-1 {
				delete(ends, record.Partition)
			}
			if record.Attrs.IsControl() {
				return
			}
			headers := []header{}
			for _, each := range record.Headers {
				headers = append(headers, header{each.Key, each.Value})
			}
			encoder.Encode([]any{
				record.Partition, record.Offset, record.Timestamp.UnixMilli(),
				record.Key, record.Value, headers,
			})
		})
	}
	return nil
}

// requestCounter counts Produce requests on the wire.
type requestCounter struct{ produced atomic.Int64 }

func (c *requestCounter) OnBrokerWrite(
	_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error,
) {
	if key == 0 {
		c.produced.Add(1)
	}
}

var _ kgo.HookBrokerWrite = (*requestCounter)(nil)

func produce(bootstrap, topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	counter := &requestCounter{}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.WithHooks(counter),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	start := time.Now()
	record := &kgo.Record{Topic: topic, Key: []byte("key"), Value: []byte("from franz-go")}
	result := client.ProduceSync(ctx, record)[0]
	answer := map[string]any{
		"attempts":  counter.produced.Load(),
		"elapsedMs": time.Since(start).Milliseconds(),
	}
	if result.Err == nil {
		answer["offset"] = result.Record.Offset
	} else {
		answer["error"] = result.Err.Error()
		var kafkaError *kerr.Error
		if errors.As(result.Err, &kafkaError) {
			answer["error"] = kafkaError.Message
		}
		answer["message"] = result.Err.Error()
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func main() {
	var err error
	switch {
	case len(os.Args) == 5 && os.Args[1] == "read":
		err = read(os.Args[2], os.Args[3], os.Args[4], defaultMaxBytes)
	case len(os.Args) == 6 && os.Args[1] == "read":
		var maxBytes int
		if maxBytes, err = strconv.Atoi(os.Args[5]); err == nil {
			err = read(os.Args[2], os.Args[3], os.Args[4], int32(maxBytes))
		}
	case len(os.Args) == 4 && os.Args[1] == "produce":
		err = produce(os.Args[2], os.Args[3])
	default:
		err = errors.New(
			"usage: interop read BOOTSTRAP TOPIC ISOLATION [MAX_BYTES] | produce BOOTSTRAP TOPIC")
	}
	if err != nil {
		fail(err)
	}
}

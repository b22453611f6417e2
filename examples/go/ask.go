// Asks one query of a Skysail application, prints its answer as JSON, and reports the true label if one is given.
//
//	go run . digits '[1, 2]' 1
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/kgo"
)

var prefix, schemas = env("PREFIX", "skysail"), env("SCHEMAS", "../../schemas")

// A record's schema, with the framing of Avro's single objects.
type record struct {
	schema avro.Schema
	head   []byte
}

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: ask APPLICATION ROW [LABEL], a row such as '[1, 2]'")
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		log.Fatal(err)
	}
}

func run(application, row string, truth []string) error {
	wait, err := strconv.Atoi(env("TIMEOUT_MS", "10000"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(wait)*time.Millisecond)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(env("BOOTSTRAP", "127.0.0.1:9092")),
		// All partitions without a group, and no later than now: every client sees every answer.
		kgo.ConsumeTopics(prefix+".predictions"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(time.Now().Add(-time.Minute).UnixMilli())),
		// As Kafka's Java client: queries and feedback with one key meet.
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	input, err := tensor(row)
	if err != nil {
		return err
	}
	id, token := random(), random()
	query := map[string]any{
		"query_id": id, "application": application, "input": map[string]any{"skysail.Tensor": input},
		"context": optional(os.Getenv("CONTEXT")), "sent_us": time.Now().UnixMicro(), "slo_ms": nil, "priority": 0,
		"features": []float64{}, "version": nil, "reply_token": token, "candidates": nil, "top": 1,
	}
	if err := send(ctx, client, "queries", "Query", id, query); err != nil {
		return err
	}
	prediction, err := answer(ctx, client, id, token)
	if err != nil {
		return err
	}
	if len(truth) > 0 {
		label, err := strconv.ParseInt(truth[0], 10, 64)
		if err != nil {
			return err
		}
		feedback := map[string]any{
			"query_id": id, "label": map[string]any{"long": label}, "loss": nil, "sent_us": time.Now().UnixMicro(),
		}
		if err := send(ctx, client, "feedback", "Feedback", id, feedback); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"query_id": id, "status": prediction["status"], "reason": prediction["reason"],
		"message": prediction["message"], "answer": prediction["answer"],
	})
}

// Numbers as the tensor that a model of numbers takes.
func tensor(row string) (map[string]any, error) {
	var numbers []float32
	if err := json.Unmarshal([]byte(row), &numbers); err != nil {
		return nil, err
	}
	data := make([]byte, 4*len(numbers))
	for at, number := range numbers {
		binary.LittleEndian.PutUint32(data[4*at:], math.Float32bits(number))
	}
	return map[string]any{"dtype": "float32", "shape": []int{len(numbers)}, "data": data}, nil
}

func send(ctx context.Context, client *kgo.Client, topic, name, id string, value map[string]any) error {
	kind, err := load(name)
	if err != nil {
		return err
	}
	body, err := avro.Marshal(kind.schema, value)
	if err != nil {
		return err
	}
	key := env("CONTEXT", id)
	written := &kgo.Record{Topic: prefix + "." + topic, Key: []byte(key), Value: append(kind.head, body...)}
	return client.ProduceSync(ctx, written).FirstErr()
}

func answer(ctx context.Context, client *kgo.Client, id, token string) (map[string]any, error) {
	kind, err := load("Prediction")
	if err != nil {
		return nil, err
	}
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, errors.New("no prediction in time")
		}
		for _, one := range fetches.Records() {
			if !bytes.HasPrefix(one.Value, kind.head) {
				continue // no prediction
			}
			var found map[string]any
			if err := avro.Unmarshal(kind.schema, one.Value[len(kind.head):], &found); err != nil {
				return nil, err
			}
			if found["query_id"] == id && found["reply_token"] == token {
				return found, nil
			}
		}
	}
}

func load(name string) (record, error) {
	text, err := os.ReadFile(filepath.Join(schemas, name+".avsc"))
	if err != nil {
		return record{}, err
	}
	schema, err := avro.Parse(string(text))
	if err != nil {
		return record{}, err
	}
	print, err := schema.FingerprintUsing(avro.CRC64Avro)
	if err != nil {
		return record{}, err
	}
	// Avro's single objects have it with the last byte first.
	return record{schema, binary.LittleEndian.AppendUint64([]byte{0xc3, 0x01}, binary.BigEndian.Uint64(print))}, nil
}

func optional(text string) any {
	if text == "" {
		return nil
	}
	return map[string]any{"string": text}
}

func random() string {
	bytes := make([]byte, 16)
	if _, err := rand.Read(bytes); err != nil {
		panic(fmt.Errorf("no random numbers: %w", err))
	}
	return hex.EncodeToString(bytes)
}

func env(name, otherwise string) string {
	if found := os.Getenv(name); found != "" {
		return found
	}
	return otherwise
}

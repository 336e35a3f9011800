// Command serve answers requests over HTTP with a network that a Python example trained and saved:
//
//	python examples/digits.py --save digits.safetensors
//	go run ./examples/go/serve -model digits.safetensors
//
// A request has pictures of handwritten digits, 8 rows of 8 points each, from 0 to 16; the answer has the digits and their
// probabilities. http://127.0.0.1:8080 is a page to draw one on.
//
//	curl http://127.0.0.1:8080/classify -d '{"pictures": [[0, 0, 5, 13, 9, 1, 0, 0, ...]]}'
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

//go:embed page.html
var page []byte

// request and answer are what /classify takes and gives.
type request struct {
	Pictures [][]float32 `json:"pictures"` // [n][64]
}

type answer struct {
	Digits        []int       `json:"digits"`        // [n]
	Probabilities [][]float32 `json:"probabilities"` // [n][10]
}

func main() {
	path := flag.String("model", "digits.safetensors", "the file that examples/digits.py --save wrote")
	address := flag.String("address", "127.0.0.1:8080", "where to listen; port 0 takes a free one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, *path, *address); err != nil {
		log.Fatal(err)
	}
}

// serve answers requests until the context ends; those that have begun are finished.
func serve(ctx context.Context, path, address string) error {
	model, err := load(path)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := &http.Server{Handler: handler(model), ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	closed := make(chan error, 1)
	go func() {
		<-ctx.Done()
		late, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		closed <- server.Shutdown(late)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-closed
}

func handler(model *network) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { w.Write(page) })
	mux.HandleFunc("POST /classify", func(w http.ResponseWriter, r *http.Request) {
		var asked request
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		points, err := asked.points()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		said, err := classify(model, points)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(said)
	})
	return mux
}

// points returns the points of all pictures, from 0 to 1.
func (r request) points() ([]float32, error) {
	if len(r.Pictures) == 0 {
		return nil, errors.New("classify: no pictures")
	}
	var points []float32
	for i, picture := range r.Pictures {
		if len(picture) != 64 {
			return nil, fmt.Errorf("classify: picture %d has %d points, want 64", i, len(picture))
		}
		for _, p := range picture {
			if !(p >= 0 && p <= 16) {
				return nil, fmt.Errorf("classify: picture %d has a point of %g, want 0 to 16", i, p)
			}
			points = append(points, p/16)
		}
	}
	return points, nil
}

// classify runs the network on pictures. Requests may do so at the same time: it only reads the parameters.
func classify(model *network, points []float32) (answer, error) {
	var said answer
	var err error
	core.NoGrad(func() {
		core.Tidy(func() {
			scores := model.forward(core.FromSlice(points, len(points)/64, 1, 8, 8))
			var flat []float32
			if flat, err = core.Values[float32](op.Softmax(scores, -1)); err != nil {
				return
			}
			for ; len(flat) > 0; flat = flat[10:] {
				best := 0
				for digit, p := range flat[:10] {
					if p > flat[best] {
						best = digit
					}
				}
				said.Digits = append(said.Digits, best)
				said.Probabilities = append(said.Probabilities, flat[:10:10])
			}
		})
	})
	return said, err
}

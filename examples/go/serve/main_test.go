package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/safetensors"
	"github.com/stretchr/testify/require"
)

func saved(t *testing.T) string {
	core.ManualSeed(1)
	path := filepath.Join(t.TempDir(), "digits.safetensors")
	require.NoError(t, safetensors.Save(path, nn.StateDict(newNetwork()), nil))
	return path
}

func post(t *testing.T, url, body string) (int, string) {
	reply, err := http.Post(url+"/classify", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer reply.Body.Close()
	said, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	return reply.StatusCode, string(said)
}

func TestAnswersRequestsThatComeTogether(t *testing.T) {
	model, err := load(saved(t))
	require.NoError(t, err)
	server := httptest.NewServer(handler(model))
	defer server.Close()

	one, other := make([]float32, 64), make([]float32, 64)
	for i := range other {
		other[i] = float32(i % 17)
	}
	body, err := json.Marshal(request{Pictures: [][]float32{one, other}})
	require.NoError(t, err)
	replies := make([]string, 16)
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() {
			reply, err := http.Post(server.URL+"/classify", "application/json", bytes.NewReader(body))
			if err == nil {
				said, _ := io.ReadAll(reply.Body)
				reply.Body.Close()
				replies[i] = string(said)
			}
		})
	}
	all.Wait()
	var said answer
	require.NoError(t, json.Unmarshal([]byte(replies[0]), &said))
	require.Len(t, said.Digits, 2)
	for i, shares := range said.Probabilities {
		require.Len(t, shares, 10)
		sum := float32(0)
		for _, p := range shares {
			sum += p
			require.LessOrEqual(t, p, shares[said.Digits[i]])
		}
		require.InDelta(t, 1, sum, 1e-5)
	}
	require.NotEqual(t, said.Probabilities[0], said.Probabilities[1])
	for _, reply := range replies {
		require.Equal(t, replies[0], reply)
	}

	reply, err := http.Get(server.URL)
	require.NoError(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "Draw a digit")
}

func TestWrongRequests(t *testing.T) {
	model, err := load(saved(t))
	require.NoError(t, err)
	server := httptest.NewServer(handler(model))
	defer server.Close()
	for body, message := range map[string]string{
		``:                         "EOF",
		`{}`:                       "no pictures",
		`{"pictures": [[1, 2]]}`:   "picture 0 has 2 points, want 64",
		`{"pictures": [["zero"]]}`: "cannot unmarshal",
		`{"pictures": [[17` + strings.Repeat(", 0", 63) + `]]}`: "a point of 17, want 0 to 16",
	} {
		code, said := post(t, server.URL, body)
		require.Equal(t, http.StatusBadRequest, code, body)
		require.Contains(t, said, message)
	}
}

func TestFilesOfOtherNetworks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.safetensors")
	require.NoError(t, safetensors.Save(path, nn.StateDict(nn.NewLinear(2, 3, nn.LinearOptions{})), nil))
	err := serve(context.Background(), path, "127.0.0.1:0")
	require.ErrorContains(t, err, "other.safetensors")
	require.ErrorContains(t, err, "features.0.weight")
	require.Error(t, serve(context.Background(), "nowhere.safetensors", "127.0.0.1:0"))
}

func TestServesUntilItIsStopped(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	path := saved(t)
	go func() { done <- serve(ctx, path, "127.0.0.1:0") }()
	stop()
	require.NoError(t, <-done)
}

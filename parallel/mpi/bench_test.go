//go:build cgo && linux

package mpi_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/parallel/mpi"
)

// BenchmarkPingPong times messages between two processes under each launcher, beside MPI without the transport. Times are those of one way,
// in microseconds. Idle is the share of a core that a transport takes while nothing happens.
func BenchmarkPingPong(b *testing.B) {
	headers := map[string]string{"openmpi": "openmpi", "mpich": "mpich", "abi": "standard"}
	for _, l := range launchers() {
		// There are cores enough, so nobody has to yield, and no process may be bound to one core: it has several threads.
		l.flags = nil
		if l.name == "openmpi" {
			l.flags = []string{"--bind-to", "none"}
		}
		b.Run(l.name, func(b *testing.B) {
			l.skip(b)
			raw, header := filepath.Join(b.TempDir(), "raw"), headers[l.name]
			out, err := exec.Command("cc", "-O2", "-I.", `-DABI="`+header+`.h"`, `-DLIBRARY="`+l.library+`"`, "-D"+strings.ToUpper(header), "-o", raw,
				"testdata/raw.c", "-ldl").CombinedOutput()
			require.NoError(b, err, string(out))
			for range b.N {
				report(b, l, raw)
				report(b, l, os.Args[0], "-test.run=^TestPart$")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// report runs a program in two processes and reports what it prints.
func report(b *testing.B, l launcher, program ...string) {
	command := append(l.command(2), program...)
	c := exec.Command(command[0], command[1:]...)
	c.Env = append(append(os.Environ(), l.environment...), role+"=bench", "PASSED="+b.TempDir())
	out, err := c.CombinedOutput()
	require.NoError(b, err, string(out))
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) != 2 || !strings.HasSuffix(words[1], "B") {
			continue
		}
		value, err := strconv.ParseFloat(words[0], 64)
		require.NoError(b, err)
		b.ReportMetric(value, words[1])
	}
}

// bench is what [BenchmarkPingPong] runs with the transport.
func bench(t *testing.T) {
	tr := join(t, mpi.Options{})
	me, other := tr.Process(), 1-tr.Process()
	heard := make(chan struct{}, 1)
	var posts atomic.Int64
	tr.Listen(func(_ int, message []byte) {
		if len(message) == 4 {
			posts.Add(1)
		} else {
			heard <- struct{}{}
		}
	})
	print := func(format string, value float64, size int) {
		if me == 0 {
			fmt.Printf("%g "+format+"\n", value, size)
		}
	}
	best := func(rounds int, round func(way int)) float64 {
		least := time.Hour
		for range 20 {
			begin := time.Now()
			for range rounds {
				round(0)
				round(1)
			}
			least = min(least, time.Since(begin))
		}
		return float64(least.Nanoseconds()) / 2000 / float64(rounds)
	}
	for _, c := range []struct{ size, rounds int }{{4, 2000}, {1 << 16, 200}, {4 << 20, 10}} {
		data, into, parked := make([]byte, c.size), make([]byte, c.size), make(chan error, 1)
		var ended atomic.Bool
		polled := func(err error) { require.NoError(t, err); ended.Store(true) }
		give := func(way int, done func(error)) {
			if way == me {
				tr.Send(other, 1, data, done)
			} else {
				tr.Recv(other, 1, into, done)
			}
		}
		print("us/%dB", best(c.rounds, func(way int) {
			ended.Store(false)
			give(way, polled)
			for !ended.Load() {
				tr.Progress()
			}
		}), c.size)
		print("parked-us/%dB", best(c.rounds/5, func(way int) {
			give(way, func(err error) { parked <- err })
			require.NoError(t, <-parked)
		}), c.size)
	}
	print("post-us/%dB", best(2000, func(way int) {
		if way == me {
			tr.Post(other, make([]byte, 4))
			return
		}
		for posts.Load() == 0 {
			tr.Progress()
		}
		posts.Add(-1)
	}), 4)
	print("parked-post-us/%dB", best(400, func(way int) {
		if way == me {
			tr.Post(other, nil)
		} else {
			<-heard
		}
	}), 0)

	time.Sleep(100 * time.Millisecond)
	const idle = 2 * time.Second
	before := cpu(t)
	time.Sleep(idle)
	print("%%idle/%dB", 100*float64(cpu(t)-before)/float64(idle), 0)
	require.NoError(t, tr.Close())
}

// cpu returns the time that the process has computed.
func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

//go:build cgo && linux

package process_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/mpi"
	"github.com/plait-ml/plait/parallel/process"
)

var all = flag.Bool("all", false, "run the tests that take long, too")

const (
	role     = "TEST_PROCESS_ROLE"   // the part of a test that a process plays
	folder   = "TEST_PROCESS_FOLDER" // where it leaves files
	patience = 60 * time.Second      // it only guards against hangs
)

// roles are played by processes of their own. What one returns is written to a file, "ok" for nil.
var roles = map[string]func(w *process.World) error{"count": count, "rounds": rounds, "fail": fail, "bench": bench}

func TestMain(m *testing.M) {
	if name := os.Getenv(role); name != "" {
		mpi.Exit(play(name))
	}
	os.Exit(m.Run())
}

// play joins the world and plays a role.
func play(name string) int {
	heartbeat, _ := time.ParseDuration(os.Getenv("TEST_PROCESS_HEARTBEAT"))
	ranks, _ := strconv.Atoi(os.Getenv("TEST_PROCESS_RANKS"))
	leave(fmt.Sprint("pid-", os.Getpid()), nil)
	w, err := process.Join(process.Options{HeartbeatTimeout: heartbeat, JoinTimeout: patience, Ranks: ranks})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	err = roles[name](w)
	leave(fmt.Sprint("end-", w.Process()), err)
	if err = errors.Join(err, w.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// leave writes a file with the time and a text, which is there only when it is whole.
func leave(name string, err error) {
	text := "ok"
	if err != nil {
		text = err.Error()
	}
	path := filepath.Join(os.Getenv(folder), name)
	if os.WriteFile(path+".part", fmt.Appendf(nil, "%d %s", time.Now().UnixNano(), text), 0o666) == nil {
		_ = os.Rename(path+".part", path)
	}
}

// read waits for a file of [leave].
func read(t *testing.T, dir, name string, out *bytes.Buffer) (at time.Time, text string) {
	t.Helper()
	var data []byte
	require.Eventually(t, func() (ok bool) {
		var err error
		data, err = os.ReadFile(filepath.Join(dir, name))
		return err == nil
	}, patience, 10*time.Millisecond, "%s: %v", name, out)
	number, text, _ := strings.Cut(string(data), " ")
	var nano int64
	_, err := fmt.Sscan(number, &nano)
	require.NoError(t, err)
	return time.Unix(0, nano), text
}

// exists reports whether the test has left a file for its processes.
func exists(name string) bool {
	_, err := os.Stat(filepath.Join(os.Getenv(folder), name))
	return err == nil
}

// reduce sums n ones over the ranks and checks the sum.
func reduce(r *collective.Rank, n int) error {
	x := op.Ones(n)
	if err := r.World.AllReduce(x, collective.Sum).Wait(); err != nil {
		return err
	}
	v, err := core.Values[float32](x)
	if err != nil {
		return err
	}
	for i := range v {
		if v[i] != float32(r.World.Size()) {
			return fmt.Errorf("element %d of the sum is %v", i, v[i])
		}
	}
	return nil
}

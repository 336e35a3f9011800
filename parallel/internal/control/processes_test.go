//go:build unix

package control_test

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plait-ml/plait/parallel/internal/control"
	"github.com/stretchr/testify/require"
)

const memberEnv = "PLAIT_CONTROL_TEST_MEMBER" // process/processes

func TestMain(m *testing.M) {
	if s := os.Getenv(memberEnv); s != "" {
		var process, processes int
		if _, err := fmt.Sscanf(s, "%d/%d", &process, &processes); err != nil {
			os.Exit(2)
		}
		runMember(process, processes)
		return
	}
	os.Exit(m.Run())
}

// runMember is a process of a world: its parent exchanges payloads by lines of its standard streams and then gives orders.
func runMember(process, processes int) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	var mu sync.Mutex
	say := func(format string, a ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", a...)
	}
	c, err := control.Join(control.Options{Process: process, Processes: processes, HeartbeatTimeout: short,
		Exchange: func(b []byte) ([][]byte, error) {
			say("exchange %x", b)
			line, err := in.ReadString('\n')
			if err != nil {
				return nil, err
			}
			var all [][]byte
			for _, f := range strings.Fields(line) {
				b, err := hex.DecodeString(f)
				if err != nil {
					return nil, err
				}
				all = append(all, b)
			}
			return all, nil
		},
		OnLost: func(p int, err error) {
			kind := "given up"
			var loss *control.Loss
			if errors.As(err, &loss) {
				kind = map[control.Reason]string{control.Exited: "exited", control.Silent: "silent"}[loss.Reason]
			}
			say("lost %d %s", p, kind)
		},
		OnWords: func(p int, words []byte) { say("words %d %s", p, words) },
	})
	if err != nil {
		say("error %v", err)
		os.Exit(1)
	}
	say("joined")
	for {
		order, err := in.ReadString('\n')
		switch strings.TrimSpace(order) {
		case "say":
			_ = c.Say([]byte("goodbye"))
			os.Exit(3) // at once: no Close
		case "leave":
			err = c.Leave()
			say("left %v", err)
			os.Exit(0)
		}
		if err != nil {
			os.Exit(0)
		}
	}
}

type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	mu    sync.Mutex
	lines []string
}

func (c *child) has(line string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lines {
		if l == line {
			return true
		}
	}
	return false
}

// with returns the lines that begin with a word.
func (c *child) with(word string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, l := range c.lines {
		if strings.HasPrefix(l, word+" ") {
			out = append(out, l)
		}
	}
	return out
}

func start(t *testing.T, n int) []*child {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	world := make([]*child, n)
	for p := range n {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d/%d", memberEnv, p, n))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		c := &child{cmd: cmd, in: in}
		world[p] = c
		read := make(chan struct{})
		go func() {
			defer close(read)
			s := bufio.NewScanner(out)
			s.Buffer(nil, 1<<20)
			for s.Scan() {
				c.mu.Lock()
				c.lines = append(c.lines, s.Text())
				c.mu.Unlock()
			}
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-read
			_ = cmd.Wait()
		})
	}
	for round := range 2 {
		var all []string
		for _, c := range world {
			eventually(t, "payload", func() bool { return len(c.with("exchange")) > round })
			all = append(all, strings.TrimPrefix(c.with("exchange")[round], "exchange "))
		}
		for _, c := range world {
			_, err := fmt.Fprintln(c.in, strings.Join(all, " "))
			require.NoError(t, err)
		}
	}
	for _, c := range world {
		eventually(t, "joined", func() bool { return c.has("joined") })
	}
	return world
}

// report checks that all but process victim have exactly the one loss.
func report(t *testing.T, world []*child, victim int, kind string) {
	t.Helper()
	want := fmt.Sprintf("lost %d %s", victim, kind)
	for p, c := range world {
		if p == victim {
			continue
		}
		eventually(t, fmt.Sprintf("process %d: %s", p, want), func() bool { return c.has(want) })
		require.Equal(t, []string{want}, c.with("lost"), "process %d", p)
	}
}

func TestKilledProcessesAreReported(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, victim := range []int{0, 1 + r.IntN(3)} {
		world := start(t, 4)
		time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		require.NoError(t, world[victim].cmd.Process.Kill())
		report(t, world, victim, "exited")
	}
}

func TestWordsOfAProcessThatExitsAtOnceArrive(t *testing.T) {
	world := start(t, 3)
	_, err := fmt.Fprintln(world[1].in, "say")
	require.NoError(t, err)
	report(t, world, 1, "exited")
	require.True(t, world[0].has("words 1 goodbye"))
	require.True(t, world[2].has("words 1 goodbye"))
}

func TestStoppedProcesses(t *testing.T) {
	for _, victim := range []int{0, 2} {
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			t.Parallel()
			world := start(t, 3)
			stopped := world[victim]
			require.NoError(t, stopped.cmd.Process.Signal(syscall.SIGSTOP))
			time.Sleep(short / 3)
			require.NoError(t, stopped.cmd.Process.Signal(syscall.SIGCONT))
			time.Sleep(short)
			for _, c := range world {
				require.Empty(t, c.with("lost"), "a short stop is survived")
			}
			require.NoError(t, stopped.cmd.Process.Signal(syscall.SIGSTOP))
			report(t, world, victim, "silent")
			require.NoError(t, stopped.cmd.Process.Signal(syscall.SIGCONT))
			want := fmt.Sprintf("lost %d given up", victim)
			eventually(t, "given up", func() bool { return stopped.has(want) })
			require.Equal(t, []string{want}, stopped.with("lost"), "it blames nobody")
		})
	}
}

func TestProcessesLeave(t *testing.T) {
	world := start(t, 3)
	for _, p := range []int{1, 0, 2} {
		_, err := fmt.Fprintln(world[p].in, "leave")
		require.NoError(t, err)
		eventually(t, "left", func() bool { return world[p].has("left <nil>") })
	}
	for _, c := range world {
		require.Empty(t, c.with("lost"))
	}
}

//go:build cgo && linux

package process_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/process"
)

// A network has two hosts, which are network namespaces of this machine with one link between them.
type network struct {
	t     *testing.T
	dir   string
	hosts [2]string // names of the namespaces, and of the hosts
}

const (
	subnet = "10.213.77"
	device = "link0" // the end of the link in each namespace
)

// newNetwork makes a network, or skips the test where that is not allowed.
func newNetwork(t *testing.T) *network {
	t.Helper()
	for _, program := range []string{"ip", "unshare", "mpiexec.openmpi"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: %v", program, err)
		}
	}
	n := &network{t: t, dir: t.TempDir()}
	for i := range n.hosts {
		n.hosts[i] = fmt.Sprintf("plait-%d-%d", os.Getpid(), i)
		if out, err := exec.Command("ip", "netns", "add", n.hosts[i]).CombinedOutput(); err != nil {
			t.Skipf("network namespaces need root and CAP_NET_ADMIN: %s", out)
		}
		t.Cleanup(func() { n.remove(i) })
	}
	n.ip("link", "add", device, "netns", n.hosts[0], "type", "veth", "peer", "name", device, "netns", n.hosts[1])
	for i, host := range n.hosts {
		n.ip("-n", host, "address", "add", fmt.Sprintf("%s.%d/24", subnet, i+1), "dev", device)
		n.ip("-n", host, "link", "set", "lo", "up")
	}
	n.link(true)
	return n
}

func (n *network) ip(arguments ...string) {
	n.t.Helper()
	out, err := exec.Command("ip", arguments...).CombinedOutput()
	require.NoError(n.t, err, "ip %v: %s", arguments, out)
}

// link cuts the link, at one end, or heals it.
func (n *network) link(up bool) {
	n.t.Helper()
	state := map[bool]string{true: "up", false: "down"}[up]
	for i := range n.hosts {
		n.ip("-n", n.hosts[i], "link", "set", device, state)
	}
}

// remove ends what is left in a namespace, and removes it.
func (n *network) remove(i int) {
	out, _ := exec.Command("ip", "netns", "pids", n.hosts[i]).Output()
	for _, text := range strings.Fields(string(out)) {
		if pid, err := strconv.Atoi(text); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	_ = exec.Command("ip", "netns", "delete", n.hosts[i]).Run()
}

// start starts a process on each host, which plays a role, and returns what they print. A script takes the place of ssh.
func (n *network) start(part string, heartbeat time.Duration) *bytes.Buffer {
	n.t.Helper()
	agent := filepath.Join(n.dir, "agent")
	const enter = `exec ip netns exec "$name" unshare --uts sh -c "hostname $name; $*"`
	script := fmt.Sprintf("#!/bin/sh\nname=%s\nshift\n%s\n", n.hosts[1], enter)
	require.NoError(n.t, os.WriteFile(agent, []byte(script), 0o777))
	line := []string{
		"mpiexec.openmpi", "-n", "2", "--host", subnet + ".1:1," + subnet + ".2:1", "--bind-to", "none", "--enable-recovery",
		"--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self", "--mca", "pml", "ob1", "--mca", "mpi_yield_when_idle", "1",
		"--mca", "btl_tcp_if_include", subnet + ".0/24", "--mca", "oob_tcp_if_include", subnet + ".0/24", os.Args[0],
	}
	c := exec.Command("ip", "netns", "exec", n.hosts[0], "unshare", "--uts", "sh", "-c", "hostname "+n.hosts[0]+"; exec "+strings.Join(line, " "))
	c.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PLAIT_MPI=openmpi", role+"="+part,
		folder+"="+n.dir, "TEST_PROCESS_HEARTBEAT="+heartbeat.String())
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := &bytes.Buffer{}
	c.Stdout, c.Stderr = out, out
	c.WaitDelay = time.Second
	require.NoError(n.t, c.Start())
	n.t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		for i := range n.hosts {
			n.remove(i)
		}
		_ = c.Wait()
	})
	return out
}

// traffic returns the bytes that this host's end of the link has received and sent.
func traffic() (received, sent int, err error) {
	text, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		if fields := strings.Fields(rest); strings.TrimSpace(name) == device && len(fields) > 8 {
			if received, err = strconv.Atoi(fields[0]); err == nil {
				sent, err = strconv.Atoi(fields[8])
			}
			return received, sent, err
		}
	}
	return 0, 0, fmt.Errorf("this process has no %s", device)
}

// count compares the bytes on the link with the formula.
func count(w *process.World) error {
	return w.Spawn(nil, func(r *collective.Rank) error {
		if err := reduce(r, 1000); err != nil { // connects
			return err
		}
		for _, n := range []int{100_003, 4 << 20} {
			size := r.World.Size()
			received, sent, err := traffic()
			if err != nil {
				return err
			}
			if err := r.World.Barrier(); err != nil {
				return err
			}
			if err := reduce(r, n); err != nil {
				return err
			}
			if err := r.World.Barrier(); err != nil {
				return err
			}
			nowReceived, nowSent, err := traffic()
			if err != nil {
				return err
			}
			want := 2 * (size - 1) * 4 * n / size
			for _, got := range []int{nowReceived - received, nowSent - sent} {
				if got < want || got > want+want/12+50_000 { // headers, acknowledgements, messages
					return fmt.Errorf("the link has moved %d bytes for an all-reduce of %d, want %d and a little more", got, 4*n, want)
				}
			}
		}
		return nil
	})
}

// rounds reduces until the test says that it is enough.
func rounds(w *process.World) error {
	return w.Spawn(nil, func(r *collective.Rank) error {
		for i := 0; ; i++ {
			for _, n := range []int{3, 300_000} {
				if err := reduce(r, n); err != nil {
					return err
				}
			}
			leave(fmt.Sprintf("round-%d", w.Process()), fmt.Errorf("%d", i))
			flag := 0.0
			if exists("enough") {
				flag = 1
			}
			texts, err := r.World.Exchange([]byte{byte(flag)})
			if err != nil {
				return err
			}
			if texts[0][0] == 1 {
				return nil
			}
		}
	})
}

func TestBytesOnALink(t *testing.T) {
	n := newNetwork(t)
	out := n.start("count", 30*time.Second)
	for p := range n.hosts {
		_, text := read(t, n.dir, fmt.Sprint("end-", p), out)
		require.Equal(t, "ok", text, out)
	}
}

// TestLinkCutForAWhile cuts the link for 12 seconds.
func TestLinkCutForAWhile(t *testing.T) {
	if !*all {
		t.Skip("it takes half a minute: -all")
	}
	n := newNetwork(t)
	out := n.start("rounds", 30*time.Second)
	read(t, n.dir, "round-1", out)
	n.link(false)
	time.Sleep(12 * time.Second)
	_, before := read(t, n.dir, "round-0", out)
	n.link(true)
	require.Eventually(t, func() bool { _, now := read(t, n.dir, "round-0", out); return now != before }, patience, 10*time.Millisecond, out)
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, "enough"), nil, 0o666))
	for p := range n.hosts {
		_, text := read(t, n.dir, fmt.Sprint("end-", p), out)
		require.Equal(t, "ok", text, out)
	}
}

// TestLinkCutForGood cuts the link. Each process must raise in time, and name the other one.
func TestLinkCutForGood(t *testing.T) {
	const heartbeat = 2 * time.Second
	n := newNetwork(t)
	out := n.start("rounds", heartbeat)
	read(t, n.dir, "round-1", out)
	cut := time.Now()
	n.link(false)
	for p, host := range n.hosts {
		at, text := read(t, n.dir, fmt.Sprint("end-", p), out)
		require.Contains(t, text, fmt.Sprintf("rank %d is gone: process %d on host %s has not been heard from by process %d", 1-p, 1-p, n.hosts[1-p], p), "%s: %v", host, out)
		require.Less(t, at.Sub(cut), heartbeat+5*time.Second, text)
	}
}

package control

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options says how a process joins the channel. The functions are called from goroutines of the channel.
type Options struct {
	Process, Processes int
	// Exchange gathers a small payload of every process, in the order of the processes. Join calls it twice.
	Exchange func(payload []byte) ([][]byte, error)
	// HeartbeatTimeout is the silence after which a process is lost; 0 is 30 seconds. Heartbeats go every sixth of it, and at least every second.
	HeartbeatTimeout time.Duration
	// Address to listen on, host:port; "" is loopback if all processes share a host, otherwise all addresses of the host.
	Address string
	// Advertise has the addresses, host:port, told to the other processes; nil is those listened on.
	Advertise []string
	// Host is the name of the host in messages; "" is the system's.
	Host string
	// Status returns what the process does now, for the heartbeats. It must be quick and is called from several goroutines. It is cut at 64 KiB.
	Status func() []byte
	// Answer answers the question of another process's Collect.
	Answer func(question []byte) []byte
	// OnLost is called once for each lost process, with a *Loss; and for the own one, with a *GivenUp, if the others have given it up.
	OnLost func(process int, err error)
	// OnWords is called with the last words of another process.
	OnWords func(process int, words []byte)
}

// Join connects the process with the others. All processes must call it; it returns when this one's links are up.
func Join(o Options) (*Channel, error) {
	if o.HeartbeatTimeout == 0 {
		o.HeartbeatTimeout = 30 * time.Second
	}
	if o.Processes < 1 || o.Process < 0 || o.Process >= o.Processes || o.Exchange == nil || o.HeartbeatTimeout < 0 {
		return nil, fmt.Errorf("control: joining as process %d of %d with a timeout of %v: want a process of the world, an Exchange and a positive timeout",
			o.Process, o.Processes, o.HeartbeatTimeout)
	}
	c := &Channel{o: o, interval: max(min(o.HeartbeatTimeout/6, time.Second), time.Millisecond), questions: map[uint64]*question{},
		eventDue: make(chan struct{}, 1)}
	c.changed = sync.NewCond(&c.mu)
	if err := c.meet(); err != nil {
		if c.ln != nil {
			_ = c.ln.Close()
		}
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.deliver() // Close does not wait for it, so that a callback may close
	c.goDo(c.accept)
	c.goDo(c.watch)
	c.mu.Lock()
	c.connect()
	var missing []string
	var lost error
	ok := c.wait(o.HeartbeatTimeout, func() bool {
		missing, lost = nil, c.given
		for _, p := range c.peers {
			if p.link == nil || p.link.known || p.left {
				continue
			}
			if p.lost != nil {
				lost = p.lost
			} else {
				missing = append(missing, fmt.Sprintf("process %d on host %s (%s)", p.number, p.host, strings.Join(p.addresses, ", ")))
			}
		}
		return len(missing) == 0 || lost != nil
	})
	c.mu.Unlock()
	if ok && lost == nil {
		return c, nil
	}
	_ = c.Close()
	if lost != nil {
		return nil, lost
	}
	return nil, fmt.Errorf("control: process %d on host %s found no connection within %v with %s", o.Process, c.o.Host, o.HeartbeatTimeout, strings.Join(missing, "; "))
}

// meet exchanges hosts, then addresses: where to listen depends on whether all share a host.
func (c *Channel) meet() error {
	if c.o.Host == "" {
		c.o.Host, _ = os.Hostname()
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	system, _ := os.Hostname()
	network, _ := os.Readlink("/proc/self/ns/net") // a container may have one of its own
	var token [32]byte
	_, _ = rand.Read(token[:])
	all, err := c.exchange(texts(string(token[:]), c.o.Host, system+"/"+string(bytes.TrimSpace(boot))+"/"+network), 3)
	if err != nil {
		return err
	}
	shared := true
	for i, t := range all {
		shared = shared && t[2] == all[0][2]
		c.peers = append(c.peers, &peer{c: c, number: i, host: t[1], seen: map[uint64]*link{}})
	}
	if copy(c.token[:], all[0][0]) != len(c.token) {
		return errors.New("control: process 0 sent no token")
	}
	addresses, failed := c.listen(shared)
	text := ""
	if failed != nil {
		text = failed.Error()
	}
	// A process that cannot listen says so, so that nobody waits for it.
	all, err = c.exchange(texts(text, strings.Join(addresses, "\n")), 2)
	if failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	for i, t := range all {
		if t[0] != "" {
			return fmt.Errorf("control: process %d on host %s cannot listen: %s", i, c.peers[i].host, t[0])
		}
		c.peers[i].addresses = strings.Split(t[1], "\n")
	}
	return nil
}

func (c *Channel) exchange(payload []byte, n int) ([][]string, error) {
	all, err := c.o.Exchange(payload)
	if err != nil {
		return nil, fmt.Errorf("control: exchanging addresses: %w", err)
	}
	if len(all) != c.o.Processes {
		return nil, fmt.Errorf("control: the exchange gave %d payloads for %d processes", len(all), c.o.Processes)
	}
	out := make([][]string, len(all))
	for i, b := range all {
		if out[i], err = readTexts(b, n); err != nil {
			return nil, fmt.Errorf("control: process %d: %w", i, err)
		}
	}
	return out, nil
}

// listen opens the port and returns the addresses by which others may reach it.
func (c *Channel) listen(shared bool) ([]string, error) {
	address := c.o.Address
	if address == "" && shared {
		address = "127.0.0.1:0"
	} else if address == "" {
		address = ":0"
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("control: listening on %q: %w", address, err)
	}
	c.ln = ln
	if c.o.Advertise != nil {
		return c.o.Advertise, nil
	}
	at := ln.Addr().(*net.TCPAddr)
	if !at.IP.IsUnspecified() {
		return []string{at.String()}, nil
	}
	port := strconv.Itoa(at.Port)
	var four, six []string
	found, _ := net.InterfaceAddrs()
	for _, a := range found {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok || n.IP.IsLoopback() || !n.IP.IsGlobalUnicast():
		case n.IP.To4() != nil:
			four = append(four, net.JoinHostPort(n.IP.String(), port))
		default:
			six = append(six, net.JoinHostPort(n.IP.String(), port))
		}
	}
	if len(four)+len(six) == 0 {
		return nil, errors.New("control: the host has no address but loopback, and the processes are on several hosts")
	}
	return append(four, six...), nil
}

// texts packs strings, each with its length as uint32, behind the version.
func texts(s ...string) []byte {
	b := []byte{version}
	for _, t := range s {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t)))
		b = append(b, t...)
	}
	return b
}

func readTexts(b []byte, n int) ([]string, error) {
	if len(b) < 1 || b[0] != version {
		return nil, fmt.Errorf("not a payload of version %d: processes of different releases cannot join", version)
	}
	b = b[1:]
	var out []string
	for range n {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.LittleEndian.Uint32(b)) {
			return nil, errors.New("a payload is cut short")
		}
		k := 4 + int(binary.LittleEndian.Uint32(b))
		out = append(out, string(b[4:k]))
		b = b[k:]
	}
	return out, nil
}

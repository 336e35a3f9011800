package control

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const magic = "plaitctl"

// A hello opens a connection. A probe only asks whether the process is there.
type hello struct {
	token    [32]byte
	from, to uint32
	probe    bool
	attempt  uint64 // grows with each connection of the link
	received uint64 // last numbered frame that came
}

const helloSize = len(magic) + 1 + 32 + 4 + 4 + 1 + 8 + 8

func (h hello) bytes() []byte {
	b := append([]byte(magic), version)
	b = append(b, h.token[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.from)
	b = binary.LittleEndian.AppendUint32(b, h.to)
	if h.probe {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.LittleEndian.AppendUint64(b, h.attempt)
	return binary.LittleEndian.AppendUint64(b, h.received)
}

func readHello(r io.Reader) (h hello, err error) {
	var b [helloSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return h, err
	}
	n := len(magic)
	if string(b[:n]) != magic || b[n] != version {
		return h, errors.New("control: not a hello of this version")
	}
	copy(h.token[:], b[n+1:])
	h.from = binary.LittleEndian.Uint32(b[n+33:])
	h.to = binary.LittleEndian.Uint32(b[n+37:])
	h.probe = b[n+41] == 1
	h.attempt = binary.LittleEndian.Uint64(b[n+42:])
	h.received = binary.LittleEndian.Uint64(b[n+50:])
	return h, nil
}

// The replies to a hello: a byte, the last numbered frame that came, and a text with its length as uint16.
const (
	welcome = iota
	givenUp // the text says why
	hasLeft // it is known already that the greeting process leaves
)

func writeReply(w io.Writer, kind byte, received uint64, text string) error {
	text = text[:min(len(text), maxHello)]
	b := binary.LittleEndian.AppendUint64([]byte{kind}, received)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	_, err := w.Write(append(b, text...))
	return err
}

func readReply(r io.Reader) (kind byte, received uint64, text string, err error) {
	var b [11]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, 0, "", err
	}
	n := binary.LittleEndian.Uint16(b[9:])
	if n > maxHello || b[0] > hasLeft {
		return 0, 0, "", errors.New("control: not a reply to a hello")
	}
	t := make([]byte, n)
	_, err = io.ReadFull(r, t)
	return b[0], binary.LittleEndian.Uint64(b[1:]), string(t), err
}

// accept takes connections, each greeted by a goroutine of its own, so that a slow stranger keeps nobody waiting.
func (c *Channel) accept() {
	slots := make(chan struct{}, 256+c.o.Processes)
	for {
		conn, err := c.ln.Accept()
		if err != nil {
			select {
			case <-c.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond): // such as too many open files
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default: // a flood of strangers
			_ = conn.Close()
			continue
		}
		if !c.goDo(func() {
			defer func() { <-slots }()
			if c.greet(conn) != nil {
				_ = conn.Close()
			}
		}) {
			_ = conn.Close()
		}
	}
}

func (c *Channel) greet(conn net.Conn) error {
	stop := c.closeWhenDone(conn)
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(c.interval))
	h, err := readHello(conn)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(h.token[:], c.token[:]) != 1 || int(h.to) != c.o.Process || int(h.from) >= c.o.Processes || h.from == h.to {
		return errors.New("control: a stranger")
	}
	c.mu.Lock()
	p := c.peers[h.from]
	if p.lost != nil {
		text := p.lost.Error()
		c.mu.Unlock()
		_ = writeReply(conn, givenUp, 0, text)
		return fmt.Errorf("control: process %d was given up", h.from)
	}
	if p.left {
		c.mu.Unlock()
		_ = writeReply(conn, hasLeft, 0, "")
		return errors.New("control: from a process that has left")
	}
	if h.probe {
		if int(h.from) < c.o.Process && !p.gone() {
			c.linkTo(p) // it waits for this process to dial
		}
		c.mu.Unlock()
		_ = writeReply(conn, welcome, 0, "")
		return errors.New("control: only a probe")
	}
	if int(h.from) < c.o.Process {
		c.mu.Unlock()
		return errors.New("control: a link that is not wanted")
	}
	l := c.linkTo(p)
	if h.attempt <= l.attempt {
		c.mu.Unlock()
		return errors.New("control: an old connection")
	}
	l.attempt = h.attempt
	if l.conn != nil {
		_ = l.conn.Close()
	}
	received := l.received
	c.mu.Unlock()
	if err := writeReply(conn, welcome, received, ""); err != nil {
		return err
	}
	if l.attach(conn, h.attempt, h.received) == nil {
		return errors.New("control: an old connection")
	}
	p.found(conn.RemoteAddr())
	return nil
}

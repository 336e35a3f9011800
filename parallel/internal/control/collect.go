package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

const (
	answerHeader = 17
	maxAnswer    = maxFrame - frameHeader - answerHeader
	maxQuestion  = 1 << 20
)

// A question waits for its answers.
type question struct {
	answers [][]byte
	errs    []error
	came    []bool
}

// Collect asks all processes, this one included, and returns their answers by process. An answer that did not come is nil, and its error names the
// process and says why.
func (c *Channel) Collect(ask []byte, timeout time.Duration) ([][]byte, []error) {
	n := len(c.peers)
	q := &question{answers: make([][]byte, n), errs: make([]error, n), came: make([]bool, n)}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.given
	if c.closed {
		err = errClosed
	} else if len(ask) > maxQuestion {
		err = fmt.Errorf("control: a question of %d bytes, not at most %d", len(ask), maxQuestion)
	}
	if err != nil {
		for i := range q.errs {
			q.errs[i] = err
		}
		return q.answers, q.errs
	}
	c.questions[c.id+1] = q
	id := c.flood(questionNews, ask)
	defer delete(c.questions, id)
	c.wait(timeout, func() bool {
		for i, p := range c.peers {
			if !q.came[i] && !p.gone() {
				return false
			}
		}
		return true
	})
	for i, p := range c.peers {
		switch {
		case q.came[i]:
		case p.lost != nil:
			q.errs[i] = p.lost
		case p.left:
			q.errs[i] = fmt.Errorf("control: process %d on host %s has left", i, p.host)
		case c.given != nil:
			q.errs[i] = c.given
		case c.closed:
			q.errs[i] = errClosed
		default:
			q.errs[i] = fmt.Errorf("control: process %d on host %s has not answered within %v", i, p.host, timeout)
		}
	}
	// Answers that come later must not change what was returned.
	return append([][]byte(nil), q.answers...), q.errs
}

// asked has a question answered, on a goroutine that Close does not wait for. The channel is locked.
func (c *Channel) asked(asker *peer, id uint64, ask []byte) {
	if c.closed {
		return
	}
	go func() {
		answer, err := c.answer(ask)
		b := binary.LittleEndian.AppendUint32(nil, uint32(asker.number))
		b = binary.LittleEndian.AppendUint64(b, id)
		b = binary.LittleEndian.AppendUint32(b, uint32(c.o.Process))
		if err != nil {
			b = append(append(b, 0), err.Error()...)
		} else {
			b = append(append(b, 1), answer...)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.answered(b)
	}()
}

func (c *Channel) answer(ask []byte) (answer []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			answer, err = nil, fmt.Errorf("its answer panicked: %v", r)
		}
	}()
	if c.o.Answer == nil {
		return nil, errors.New("it answers no questions")
	}
	answer = c.o.Answer(ask)
	if len(answer) > maxAnswer {
		return nil, fmt.Errorf("its answer has %d bytes, not at most %d", len(answer), maxAnswer)
	}
	return answer, nil
}

// answered takes in an answer, or passes it on by the link from which the question came. The channel is locked.
func (c *Channel) answered(b []byte) bool {
	if len(b) < answerHeader {
		return false
	}
	asker, id, from := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint32(b[12:])
	if int(asker) >= len(c.peers) || int(from) >= len(c.peers) {
		return false
	}
	if int(asker) != c.o.Process {
		if l := c.peers[asker].seen[id]; l != nil {
			l.send(answerFrame, b)
		}
		return true
	}
	q := c.questions[id]
	if q == nil || q.came[from] {
		return true
	}
	q.came[from] = true
	if b[16] == 1 {
		q.answers[from] = b[answerHeader:]
	} else {
		q.errs[from] = fmt.Errorf("control: process %d on host %s gave no answer: %s", from, c.peers[from].host, b[answerHeader:])
	}
	c.changed.Broadcast()
	return true
}

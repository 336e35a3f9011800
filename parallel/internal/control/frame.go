package control

import (
	"encoding/binary"
	"fmt"
	"io"
)

const (
	version  = 1
	maxFrame = 16 << 20 // bytes of a frame behind its length
	maxHello = 4 << 10

	frameHeader = 9 // kind and sequence number
	newsHeader  = 13
)

// A frame is a uint32 with the length of what follows, a kind, a uint64 sequence number (0: not numbered, not sent again) and a body. All numbers
// are little-endian.
const (
	beatFrame   = iota + 1 // acknowledged uint64, status
	ackFrame               // acknowledged uint64
	newsFrame              // origin uint32, id uint64, kind uint8, body
	leaveFrame             // process uint32, ...
	answerFrame            // asker uint32, id uint64, from uint32, answer
)

type frame struct {
	kind byte
	seq  uint64
	body []byte
}

func writeFrame(w io.Writer, f frame) error {
	b := make([]byte, 0, 4+frameHeader+len(f.body))
	b = binary.LittleEndian.AppendUint32(b, uint32(frameHeader+len(f.body)))
	b = append(b, f.kind)
	b = binary.LittleEndian.AppendUint64(b, f.seq)
	_, err := w.Write(append(b, f.body...))
	return err
}

func readFrame(r io.Reader) (frame, error) {
	var head [4 + frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n < frameHeader || n > maxFrame {
		return frame{}, fmt.Errorf("control: frame of %d bytes, not %d to %d", n, frameHeader, maxFrame)
	}
	f := frame{kind: head[4], seq: binary.LittleEndian.Uint64(head[5:]), body: make([]byte, n-frameHeader)}
	_, err := io.ReadFull(r, f.body)
	return f, err
}

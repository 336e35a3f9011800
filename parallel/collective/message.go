package collective

// The messages between the processes of a world, and how they are written.

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/plait-ml/plait/core"
)

// wireFormat is the number of the format of messages and transfers. Processes with different numbers do not form a world. Count it up with any
// change of the messages, or of how transfers are cut.
const wireFormat = 6

// A messageKind says what a message is about.
type messageKind byte

const (
	hello        messageKind = iota // how many ranks the process has; see [JoinWorld]
	rankLeftAll                     // a rank has left the world
	processLost                     // another process is lost
	processLeft                     // a process ends its part in the world in order
	announcement                    // a rank's call of a collective
	refusal                         // a rank's call of a collective cannot take part
	failed                          // the process takes no part in a collective or a send
	smallData                       // the inputs of a call whose announcement came without them
	launched                        // the process has launched a round on which it decides
	ready                           // the process can send and receive the data of a collective
	ended                           // all data that the process has sent is valid, or why not
	sendCall                        // a rank's call of send
	matched                         // a send has met its recv
	withdrawal                      // a rank no longer waits for the recv of its send
	revocationBy                    // a rank has revoked a channel
	rankLeft                        // a rank has left a group
	offered                         // memory of a process's device: see [sharing]
	faulted                         // a process writes a flight record: the others write theirs
)

// opensGroup reports whether messages of the kind may come before a rank of this process has made the group.
func (k messageKind) opensGroup() bool {
	switch k {
	case announcement, refusal, sendCall, withdrawal, revocationBy, rankLeft:
		return true
	}
	return false
}

// A writer appends the fields of a message.
type writer []byte

func (w *writer) uint(v uint64) { *w = binary.AppendUvarint(*w, v) }
func (w *writer) int(v int)     { *w = binary.AppendVarint(*w, int64(v)) }
func (w *writer) id(v uint64)   { *w = binary.LittleEndian.AppendUint64(*w, v) }

func (w *writer) bool(v bool) {
	if v {
		*w = append(*w, 1)
	} else {
		*w = append(*w, 0)
	}
}

func (w *writer) bytes(v []byte) {
	w.uint(uint64(len(v)))
	*w = append(*w, v...)
}

// error writes an error with its kind. Its causes become text.
func (w *writer) error(err error) {
	if err == nil {
		*w = append(*w, 0)
		return
	}
	kind, known := core.KindOf(err)
	if !known {
		kind = core.DistributedError
	}
	*w = append(*w, 1+byte(kind))
	var f *rankFailure
	w.bool(errors.As(err, &f))
	o := originOf(err)
	w.id(o.process)
	w.id(o.number)
	w.bytes([]byte(err.Error()))
}

func (w *writer) key(k roundKey) {
	w.id(k.channel)
	w.uint(k.seq)
	w.int(k.sender)
}

// A reader takes the fields of a message. After the end of the message, or a bad field, err is set and fields are zero.
type reader struct {
	rest []byte
	err  error
}

var errMessage = errors.New("the message is damaged")

func (r *reader) bad() { r.rest, r.err = nil, errMessage }

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.bad()
		return nil
	}
	v := r.rest[:n:n]
	r.rest = r.rest[n:]
	return v
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) bool() bool { return r.byte() != 0 }

func (r *reader) id() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) int() int {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.bad()
		return 0
	}
	r.rest = r.rest[n:]
	return int(v)
}

// count reads the length of a list whose entries take at least one byte each.
func (r *reader) count() int {
	n := r.uint()
	if n > uint64(len(r.rest)) {
		r.bad()
		return 0
	}
	return int(n)
}

func (r *reader) bytes() []byte  { return r.take(r.count()) }
func (r *reader) string() string { return string(r.bytes()) }
func (r *reader) key() roundKey  { return roundKey{r.id(), r.uint(), r.int()} }

// rank reads a number from 0 to n-1.
func (r *reader) rank(n int) int {
	v := r.int()
	if v < 0 || v >= n {
		r.bad()
		return 0
	}
	return v
}

func (r *reader) error() error {
	code := r.byte()
	if code == 0 {
		return nil
	}
	failure, from := r.bool(), origin{r.id(), r.id()}
	var err error = &core.Error{Kind: core.Kind(code - 1), Msg: r.string(), Err: from.cause()}
	if failure {
		return &rankFailure{err}
	}
	return err
}

// operation writes what other ranks must know of a call.
func (w *writer) operation(o *Operation) {
	*w = append(*w, byte(o.Kind), byte(o.Op))
	w.bool(o.ByNode)
	w.id(o.channel)
	w.uint(o.Seq)
	w.int(o.Root)
	w.int(o.Tag)
	w.bytes(o.Payload)
	w.bytes([]byte(o.Note))
	w.bytes([]byte(o.Purpose))
	w.pieces(o.Ins)
	same := len(o.Outs) == len(o.Ins)
	for i := range o.Outs {
		same = same && o.Outs[i].N == o.Ins[i].N && o.Outs[i].dtype == o.Ins[i].dtype && slices.Equal(o.Outs[i].shape, o.Ins[i].shape)
	}
	if w.bool(same); !same {
		w.pieces(o.Outs)
	}
}

// operation reads the call of a rank in a group of n ranks.
func (r *reader) operation(n int) *Operation {
	o := &Operation{Kind: Kind(r.byte()), Op: ReduceOp(r.byte()), ByNode: r.bool(), channel: r.id(), Seq: r.uint()}
	if o.Kind == KindSend || !o.Kind.rooted() {
		o.Root = r.int()
	} else {
		o.Root = r.rank(n)
	}
	o.Tag, o.Payload, o.Note, o.Purpose = r.int(), r.bytes(), r.string(), r.string()
	o.Ins = r.pieces()
	if o.Outs = o.Ins; !r.bool() {
		o.Outs = r.pieces()
	}
	if int(o.Kind) >= len(kindNames) || int(o.Op) >= len(reduceOps) {
		r.bad()
		return &Operation{}
	}
	return o
}

// pieces writes dtypes and sizes. Pieces of one tensor have one shape, which is written once.
func (w *writer) pieces(list []Piece) {
	w.uint(uint64(len(list)))
	for i := range list {
		p := &list[i]
		again := i > 0 && p.dtype == list[i-1].dtype && slices.Equal(p.shape, list[i-1].shape)
		w.uint(uint64(p.N))
		if w.bool(again); again {
			continue
		}
		*w = append(*w, byte(p.dtype))
		w.uint(uint64(len(p.shape)))
		for _, d := range p.shape {
			w.uint(uint64(d))
		}
	}
}

func (r *reader) pieces() []Piece {
	list := make([]Piece, r.count())
	for i := range list {
		p := &list[i]
		p.N = int(r.uint())
		if r.bool() && i > 0 {
			p.dtype, p.shape = list[i-1].dtype, list[i-1].shape
			continue
		}
		p.dtype = core.DType(r.byte())
		p.shape = make([]int, r.count())
		for d := range p.shape {
			p.shape[d] = int(r.uint())
		}
		if p.N < 0 || !p.dtype.Valid() {
			r.bad()
		}
	}
	if r.err != nil {
		return nil
	}
	return list
}

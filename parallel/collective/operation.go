package collective

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plait-ml/plait/core"
)

// A Kind is one of the collectives.
type Kind uint8

// The collectives. An exchange moves bytes between the hosts; barriers and new groups are exchanges. Python and C use the numbers of
// those before it: a new one comes right before it.
const (
	KindAllReduce Kind = iota
	KindBroadcast
	KindReduce
	KindAllGather
	KindReduceScatter
	KindAllToAll
	KindGather
	KindScatter
	KindSend
	KindRecv
	KindExchange
)

var kindNames = [...]string{KindAllReduce: "all_reduce", KindBroadcast: "broadcast", KindReduce: "reduce", KindAllGather: "all_gather",
	KindReduceScatter: "reduce_scatter", KindAllToAll: "all_to_all", KindGather: "gather", KindScatter: "scatter", KindSend: "send",
	KindRecv: "recv", KindExchange: "exchange"}

func (k Kind) String() string { return kindNames[k] }

func (k Kind) reduces() bool { return k == KindAllReduce || k == KindReduce || k == KindReduceScatter }
func (k Kind) rooted() bool {
	return k == KindBroadcast || k == KindReduce || k == KindGather || k == KindScatter
}

// alike reports whether a rank's outputs are its inputs and the tensors of all ranks have the same shapes. Of the others, pieces
// correspond: steps finds those that do not fit.
func (k Kind) alike() bool { return k == KindAllReduce || k == KindBroadcast || k == KindReduce }

// A Piece is a run of elements of a contiguous tensor.
type Piece struct {
	Tensor  *core.Tensor
	From, N int

	storage *core.Storage // the tensor's when the call was made; it may be released before the others come
	offset  int
}

// An Operation is one rank's part in a collective.
//
// Ins and Outs hold, by kind: all_reduce, broadcast and reduce the same pieces in both, as many as tensors; gather one piece
// in Ins and one for each rank in Outs; scatter one for each rank in Ins and one in Outs; all_gather k pieces in Ins and k
// for each rank in Outs, rank 0's first; reduce_scatter k for each rank in Ins and k in Outs; all_to_all one for each rank
// in both. Ranks that give or get nothing leave theirs empty: all but the root in Outs of a gather and in Ins of a scatter.
type Operation struct {
	Kind    Kind
	Seq     uint64 // counts the operations of the channel from 1; 0 for send and recv
	Op      ReduceOp
	Root    int // in the group; of send and recv the peer, or -1 for any
	Tag     int
	Ins     []Piece
	Outs    []Piece
	Payload []byte // of an exchange
	Note    string // the name of an exchange, such as "barrier"
	Purpose string // what it is for, such as "unit 3 (layers.2)"; see [Group.For]
	Timeout time.Duration

	group    string          // its name, in messages
	channel  uint64          // in which Seq counts; see [Group.Channel]
	made     core.Event      // after which nothing that was launched writes to Ins; nil means all
	staged   func(bytes int) // counts what went through stages
	rootLast bool            // of a reduce: the root's pieces are joined to those of the others, and not in their place among them
}

// name returns what messages call the operation, such as "all_reduce".
func (o *Operation) name() string {
	if o.Kind == KindExchange && o.Note != "" {
		return o.Note
	}
	return o.Kind.String()
}

// label returns the name with the sequence number, such as "all_reduce #5".
func (o *Operation) label() string {
	if o.Seq == 0 {
		return o.name()
	}
	return fmt.Sprintf("%s #%d", o.name(), o.Seq)
}

// layout describes the pieces, such as "float32[4 3], float32[4]".
func (o *Operation) layout() string {
	pieces := o.Ins
	if len(pieces) == 0 || o.Kind == KindAllGather || o.Kind == KindGather {
		pieces = slices.Concat(o.Ins, o.Outs)
	}
	if len(pieces) == 0 {
		return ""
	}
	var b strings.Builder
	for i, p := range pieces {
		if i == 8 && len(pieces) > 9 {
			fmt.Fprintf(&b, ", ... %d in all", len(pieces))
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(p.describe())
	}
	return b.String()
}

// String describes the operation as messages do, such as "all_reduce(sum) of float32[4 3]".
func (o *Operation) String() string {
	s := o.name()
	switch {
	case o.Kind.reduces() && o.Kind.rooted():
		s += fmt.Sprintf("(%v, root %d)", o.Op, o.Root)
	case o.Kind.reduces():
		s += fmt.Sprintf("(%v)", o.Op)
	case o.Kind.rooted():
		s += fmt.Sprintf("(root %d)", o.Root)
	}
	if w := o.what(); w != "" {
		s += " of " + w
	}
	return s
}

// what describes the pieces and the purpose, such as "float32[4 3] for bucket 1".
func (o *Operation) what() string {
	switch l := o.layout(); {
	case o.Purpose == "":
		return l
	case l == "":
		return "bytes for " + o.Purpose
	default:
		return l + " for " + o.Purpose
	}
}

// agrees reports whether o and p can be parts of one collective, as far as can be said of two ranks.
func (o *Operation) agrees(p *Operation) bool {
	if o.Kind != p.Kind || o.Root != p.Root || o.Op != p.Op || o.Note != p.Note || o.Purpose != p.Purpose {
		return false
	}
	if !o.Kind.alike() {
		return true
	}
	return slices.EqualFunc(o.Ins, p.Ins, func(a, b Piece) bool {
		return a.Tensor.DType() == b.Tensor.DType() && slices.Equal(a.Tensor.Shape(), b.Tensor.Shape())
	})
}

// fits reports whether elements of in can become those of out.
func fits(in, out Piece) bool { return in.N == out.N && in.Tensor.DType() == out.Tensor.DType() }

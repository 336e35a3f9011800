package collective

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A Kind is a kind of collective.
type Kind uint8

// The kinds. An exchange moves bytes between hosts; barriers and new groups are exchanges. Python and C use the numbers of the kinds before
// KindExchange: add a new kind right before it.
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

// byPiece reports whether every step moves whole pieces, as [plan.byRow] expects.
func (k Kind) byPiece() bool {
	return k == KindAllGather || k == KindReduceScatter || k == KindAllToAll || k == KindGather || k == KindScatter
}

// sameShapes reports whether inputs are also the outputs and have the same shapes on all ranks. For other kinds, steps checks that the
// pieces of the ranks match.
func (k Kind) sameShapes() bool { return k == KindAllReduce || k == KindBroadcast || k == KindReduce }

// A Piece is a range of elements of a contiguous tensor, or all elements of one in rows.
type Piece struct {
	Tensor  *core.Tensor
	From, N int
	rows    rows // of a tensor that is not contiguous

	// The tensor's properties at the time of the call: the tensor may be released before other ranks arrive. See [Piece.locate].
	dtype   core.DType
	shape   []int
	storage *core.Storage
	offset  int
}

// locate records the properties of the piece's tensor.
func (p *Piece) locate() {
	t := p.Tensor
	p.dtype, p.shape, p.storage, p.offset = t.DType(), t.Shape(), t.Storage(), t.Offset()
}

// bytes returns the piece's size.
func (p *Piece) bytes() int { return p.N * p.dtype.Size() }

// An Operation is one rank's call of a collective.
//
// Ins and Outs depend on the kind. all_reduce, broadcast and reduce have the same pieces in both, one per tensor. gather has one piece in
// Ins and one per rank in Outs; scatter the other way round. all_gather has k pieces in Ins and k per rank in Outs, rank 0's first;
// reduce_scatter k per rank in Ins and k in Outs. all_to_all has one per rank in both. A list is empty where a rank sends or receives
// nothing: Outs of a gather and Ins of a scatter, except on the root.
type Operation struct {
	Kind    Kind
	Seq     uint64 // counts the channel's operations from 1; 0 for send and recv
	Op      ReduceOp
	ByNode  bool // of an all_reduce: see [Group.AllReduceByNode]
	Root    int  // rank in the group; for send and recv the peer, or -1 for any
	Tag     int
	Ins     []Piece
	Outs    []Piece
	Payload []byte // of an exchange
	Note    string // name of an exchange, such as "barrier"
	Purpose string // such as "unit 3 (layers.2)"; see [Group.For]
	Timeout time.Duration

	group       string                        // name of the group, for messages
	channel     uint64                        // channel that Seq counts in; see [Group.Channel]
	made        core.Event                    // nothing launched after it writes to Ins; nil means everything launched so far
	countStaged func(bytes int)               // counts bytes copied through stages
	views       map[*core.Tensor]*core.Tensor // of complex tensors, as their parts
	rootLast    bool                          // of a reduce: the root's pieces are joined last, not in rank order
}

// usable returns the tensor that the operation moves for t, t itself or for a complex one the real tensor of its parts, and how many
// elements of it an element of t has.
func (o *Operation) usable(t *core.Tensor) (*core.Tensor, int, error) {
	if err := t.Usable(o.name()); err != nil {
		return nil, 0, err
	}
	if !t.DType().IsComplex() {
		return t, 1, nil
	}
	if o.Kind.reduces() {
		if err := o.Op.check(o.name(), t.DType()); err != nil {
			return nil, 0, err
		}
	}
	v := o.views[t]
	if v == nil {
		if v = op.ViewAsReal(t.Detach()); v.Err() != nil {
			return nil, 0, v.Err()
		}
		if o.views == nil {
			o.views = map[*core.Tensor]*core.Tensor{}
		}
		o.views[t] = v
	}
	return v, 2, nil
}

// name returns the operation's name for messages, such as "all_reduce".
func (o *Operation) name() string {
	if o.Kind == KindExchange && o.Note != "" {
		return o.Note
	}
	return o.Kind.String()
}

// label returns the name and the sequence number, such as "all_reduce #5".
func (o *Operation) label() string {
	if o.Seq == 0 {
		return o.name()
	}
	return o.name() + " #" + strconv.FormatUint(o.Seq, 10)
}

// shown returns the pieces that messages show, in two lists.
func (o *Operation) shown() (first, rest []Piece) {
	if len(o.Ins) == 0 || o.Kind == KindAllGather || o.Kind == KindGather {
		return o.Ins, o.Outs
	}
	return o.Ins, nil
}

// layout describes the pieces, such as "float32[4 3], float32[4]".
func (o *Operation) layout() string {
	first, rest := o.shown()
	pieces := slices.Concat(first, rest)
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

// variant says how the operation is done, such as "sum, root 0".
func (o *Operation) variant() string {
	switch {
	case o.Kind.reduces() && o.Kind.rooted():
		return fmt.Sprintf("%v, root %d", o.Op, o.Root)
	case o.ByNode:
		return fmt.Sprintf("%v by node", o.Op)
	case o.Kind.reduces():
		return o.Op.String()
	case o.Kind.rooted():
		return fmt.Sprintf("root %d", o.Root)
	}
	return ""
}

// String describes the operation, such as "all_reduce(sum) of float32[4 3]".
func (o *Operation) String() string {
	s := o.name()
	if v := o.variant(); v != "" {
		s += "(" + v + ")"
	}
	if w := o.detail(); w != "" {
		s += " of " + w
	}
	return s
}

// detail describes the pieces and the purpose, such as "float32[4 3] for bucket 1".
func (o *Operation) detail() string {
	switch l := o.layout(); {
	case o.Purpose == "":
		return l
	case l == "":
		return "bytes for " + o.Purpose
	default:
		return l + " for " + o.Purpose
	}
}

// agrees reports whether o and p can belong to one collective, as far as two ranks alone can tell.
func (o *Operation) agrees(p *Operation) bool {
	if o.Kind != p.Kind || o.Root != p.Root || o.Op != p.Op || o.ByNode != p.ByNode || o.Note != p.Note || o.Purpose != p.Purpose {
		return false
	}
	if !o.Kind.sameShapes() {
		return true
	}
	return slices.EqualFunc(o.Ins, p.Ins, func(a, b Piece) bool {
		return a.dtype == b.dtype && slices.Equal(a.shape, b.shape)
	})
}

// fits reports whether the pieces have equal sizes and dtypes, so that in can be copied to out.
func fits(in, out Piece) bool { return in.N == out.N && in.dtype == out.dtype }

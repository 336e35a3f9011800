package contract

var (
	// Triangle writes the lower or upper triangle of each matrix of x, and 0 elsewhere. x may be y.
	Triangle = declare(Contract{Name: "triangle", Outs: "y", Ins: "x", Ints: "diagonal upper"})
	// RepeatIndex writes each i, counted from 0, counts[i] times. Both operands are int64 and contiguous.
	RepeatIndex = declare(Contract{Name: "repeat_index", Outs: "y", Ins: "counts"})
)

// TriangleAttrs are the attributes of [Triangle].
type TriangleAttrs struct {
	Diagonal int64
	Upper    bool
}

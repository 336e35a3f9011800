package contract

// Dropout zeroes random elements of x and multiplies the others by scale. Without x, every element counts as 1.
var Dropout = declare(Contract{Name: "dropout", Outs: "y", Ins: "x?", Ints: "seed offset", Floats: "p scale"})

// DropoutAttrs are the attributes of [Dropout].
type DropoutAttrs struct {
	Seed, Offset int64   // of the random generator
	P            float64 // the probability that an element is zeroed
	Scale        float64
}

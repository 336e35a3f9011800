// Package op is the registry of operations and the functions that apply them.
//
// Every operation has a row ([Row]) in the file of its family: its name, its arguments, its documentation, its derivative
// and samples of its use. Tests loop over the rows, and the bindings for other languages are generated from them. The
// Go function of an operation, such as [MatMul], checks its arguments, allocates its results, launches a kernel and
// records how its gradient is computed; see op_context.go.
//
// Functions return at once and never panic. A result that could not be made is a tensor that carries the error.
package op

//go:generate go run github.com/plait-ml/plait/internal/gen
//go:generate go run github.com/plait-ml/plait/internal/gen/engine ../..

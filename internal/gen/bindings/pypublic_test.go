package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/op"
)

// What Python has of an operation that PyTorch lacks follows from its row, with nothing written by hand.
func TestOperationsThatPyTorchLacksArePublic(t *testing.T) {
	unary, along := *op.Lookup("entr"), *op.Lookup("softmax")
	unary.Name, along.Name = "plaits_own", "plaits_own_along"
	list := families([]*op.Row{&unary, &along, op.Lookup("entr")})
	w := &writer{root: repository}
	p := w.public()
	require.NoError(t, w.err)

	functions := p.functions(list)
	for _, name := range []string{"plaits_own", "plaits_own_", "plaits_own_along"} {
		require.Contains(t, functions, "    "+name+",\n")
		require.Contains(t, p.methods(list), "    "+name+" = _ops."+name+"\n")
	}
	require.Contains(t, functions, `_OWN: list[str] = ["plaits_own", "plaits_own_", "plaits_own_along"]`)
	require.NotContains(t, functions, "entr")
	signatures := p.signatures(list)
	require.Equal(t, []string{"plait.plaits_own(input: Tensor) -> Tensor", "Tensor.plaits_own() -> Tensor"}, signatures["plaits_own"])
	require.Equal(t, []string{"plait.plaits_own_along(input: Tensor, dim: int) -> Tensor", "Tensor.plaits_own_along(dim: int) -> Tensor"}, signatures["plaits_own_along"])
	require.Equal(t, p.python["entr"], signatures["entr"])

	p.functionsByHand["plaits_own"] = true
	require.NotContains(t, p.functions(list), "    plaits_own,\n", "a function that is written by hand takes its place")
	p.python["plaits_own"] = []string{"plait.nn.functional.plaits_own(input: Tensor) -> Tensor"}
	require.NotContains(t, p.methods(list), "    plaits_own = ", "a module that is written by hand has it")
}

func TestFunctionsThatAreMethods(t *testing.T) {
	methods := map[string]string{}
	methodsIn("@numpy_names\ndef sum(input):\n    return 1\n\n\n@overload\n@checked\ndef flip(input):\n    def inner(): ...\n\n\ndef _own(): ...\n\n\ndef det(a): ...\n", "shape", methods)
	methodsIn("@checked\ndef det(a): ...\n", "matrix", methods)
	require.Equal(t, map[string]string{"sum": "shape.sum", "flip": "method(shape.flip)", "det": ""}, methods)
}

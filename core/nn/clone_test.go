package nn_test

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

func TestReplicateCopiesEveryPart(t *testing.T) {
	shared := nn.NewLinear(2, 2, nn.LinearOptions{})
	list := nn.NewModuleList(shared, nn.NewLinear(2, 2, nn.LinearOptions{}))
	list.RegisterParameter("extra", op.Ones(2))
	list.RegisterModule("more", nn.NewModuleDict(map[string]*nn.BatchNorm{"a": nn.NewBatchNorm1d(2, nn.BatchNormOptions{})}))
	m := nn.NewSequential(shared, nn.NewLSTM(2, 3, nn.RNNOptions{Layers: 2}))
	for _, m := range []nn.Module{m, list} {
		made := map[*core.Tensor]*core.Tensor{}
		c := nn.Replicate(m, func(n nn.Named) *core.Tensor {
			if made[n.Tensor] == nil {
				made[n.Tensor] = op.Clone(n.Tensor)
			}
			return made[n.Tensor]
		})
		was, is := nn.NamedTensors(m), nn.NamedTensors(c)
		require.Equal(t, len(was), len(is))
		for i := range was {
			require.Equal(t, was[i].Name, is[i].Name)
			require.Same(t, made[was[i].Tensor], is[i].Tensor)
			require.NotSame(t, was[i].Tensor, is[i].Tensor)
		}
		parts, copies := nn.Modules(m), nn.Modules(c)
		require.Equal(t, len(parts), len(copies))
		for i := range parts {
			require.NotSame(t, parts[i].Module, copies[i].Module)
		}
		nn.Eval(c)
		for _, p := range parts {
			require.True(t, p.Module.(interface{ Training() bool }).Training())
		}
	}
}

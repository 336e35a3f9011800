package ddp_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/stretchr/testify/require"
)

// wideMLP has a weight large enough to be compressed.
func wideMLP() *nn.Sequential {
	return nn.NewSequential(nn.NewLinear(width, 24, nn.LinearOptions{}), nn.NewTanh(), nn.NewLinear(24, 24, nn.LinearOptions{}),
		nn.NewTanh(), nn.NewLinear(24, 2, nn.LinearOptions{}))
}

// relativeError returns |a-b| / |b|.
func relativeError(a, b []float64) float64 {
	var d, n float64
	for i := range a {
		d += (a[i] - b[i]) * (a[i] - b[i])
		n += b[i] * b[i]
	}
	return math.Sqrt(d / n)
}

// Each hook approximates the average within its error bound.
func TestCase23HooksAgainstTheAverage(t *testing.T) {
	for _, c := range []struct {
		name  string
		hook  func() ddp.Hook
		bound float64
		exact bool
	}{
		{"allreduce", func() ddp.Hook { return ddp.AllReduceHook }, 0, true},
		{"float16", func() ddp.Hook { return ddp.CompressHook(core.Float16, nil) }, 1e-3, false},
		{"bfloat16", func() ddp.Hook { return ddp.CompressHook(core.BFloat16, nil) }, 8e-3, false},
		{"powersgd whole rank", func() ddp.Hook {
			return ddp.NewPowerSGD(ddp.PowerSGD{Rank: 24, StartStep: -1, MinCompression: 0.1}).Hook
		}, 1e-6, false},
		{"powersgd", func() ddp.Hook { return ddp.NewPowerSGD(ddp.PowerSGD{Rank: 2, StartStep: -1}).Hook }, 0.9, false},
		{"batched powersgd", func() ddp.Hook {
			return ddp.NewPowerSGD(ddp.PowerSGD{Rank: 2, StartStep: -1, Batched: true}).Hook
		}, 0.99, false},
		{"powersgd in float16", func() ddp.Hook {
			return ddp.CompressHook(core.Float32, ddp.NewPowerSGD(ddp.PowerSGD{Rank: 24, StartStep: -1, MinCompression: 0.1}).Hook)
		}, 1e-3, false},
		{"topk all", func() ddp.Hook { return (&ddp.TopK{Ratio: 1}).Hook }, 1e-15, false},
		{"topk", func() ddp.Hook { return (&ddp.TopK{Ratio: 0.3}).Hook }, 0.8, false},
		{"custom", func() ddp.Hook {
			return func(b *ddp.Bucket) (*core.Tensor, error) {
				twice := op.Mul(b.Buffer(), core.Num(float64(2)))
				if err := b.Sum(twice); err != nil {
					return nil, err
				}
				return op.Div(twice, core.Num(float64(2*b.Divisor()))), nil
			}
		}, 1e-15, false},
	} {
		for _, view := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, "/", view), func(t *testing.T) {
				var want []float64
				in64(t, func() {
					core.ManualSeed(5)
					m := wideMLP()
					x, y := batch(0, 0, 8)
					require.NoError(t, autograd.Backward(mse(nn.Call(m, x), y)))
					var err error
					want, err = grads(m)
					require.NoError(t, err)
				})
				spawn(t, 2, func(r *collective.Rank) error {
					if r.Rank == 0 {
						core.ManualSeed(5)
					}
					p, err := ddp.New(wideMLP(), r.World, ddp.Options{FirstBucketBytes: 500, BucketBytes: 2000, BucketView: view})
					if err != nil {
						return err
					}
					if err := p.Reducer().RegisterHook(c.hook()); err != nil {
						return err
					}
					if err := backward(p, r, 0); err != nil {
						return err
					}
					got, err := grads(p)
					if err != nil {
						return err
					}
					if d := relativeError(got, want); d > math.Max(c.bound, 1e-15) {
						return fmt.Errorf("the relative error is %v, want at most %v", d, c.bound)
					}
					return p.Close()
				})
			})
		}
	}
}

// With error feedback, the loss after compressed training is close to that without compression.
func TestCase23ErrorFeedback(t *testing.T) {
	const steps = 60
	train := func(hook func() ddp.Hook) (final float64) {
		spawn(t, 2, func(r *collective.Rank) error {
			if r.Rank == 0 {
				core.ManualSeed(5)
			}
			p, err := ddp.New(wideMLP(), r.World, ddp.Options{})
			if err != nil {
				return err
			}
			if h := hook(); h != nil {
				if err := p.Reducer().RegisterHook(h); err != nil {
					return err
				}
			}
			o, err := optim.NewSGD(nn.Parameters(p), optim.Hyper{"lr": 0.2})
			if err != nil {
				return err
			}
			for range steps {
				x, y := batch(1, r.Rank*8, r.Rank*8+8)
				loss, err := step(p, o, x, y)
				if err != nil {
					return err
				}
				if r.Rank == 0 {
					final = loss
				}
			}
			return errors.Join(checkSameParameters(r, p), p.Close())
		})
		return final
	}
	plain := train(func() ddp.Hook { return nil })
	power := ddp.NewPowerSGD(ddp.PowerSGD{Rank: 1})
	with := map[string]float64{
		"powersgd": train(func() ddp.Hook { return ddp.NewPowerSGD(ddp.PowerSGD{Rank: 1}).Hook }),
		"batched":  train(func() ddp.Hook { return ddp.NewPowerSGD(ddp.PowerSGD{Rank: 1, Batched: true}).Hook }),
		"topk":     train(func() ddp.Hook { return (&ddp.TopK{Ratio: 0.05}).Hook }),
	}
	for name, loss := range with {
		require.Less(t, loss, 3*plain+0.05, name)
	}
	require.Greater(t, train(func() ddp.Hook { return (&ddp.TopK{Ratio: 0.002, NoErrorFeedback: true}).Hook }), with["topk"])
	require.Equal(t, 1.0, power.Ratio())
}

// A reducer accepts one hook, before the first step. A hook's result must have the bucket's size.
func TestCase23Registration(t *testing.T) {
	spawn(t, 1, func(r *collective.Rank) error {
		p, err := ddp.New(mlp(), r.World, small)
		if err != nil {
			return err
		}
		red := p.Reducer()
		wrong := func(err error, text string) error {
			if err == nil || !strings.Contains(err.Error(), text) {
				return fmt.Errorf("got %v, want %s", err, text)
			}
			return nil
		}
		if err := errors.Join(wrong(red.RegisterHook(nil), "no function"), wrong(red.RegisterForeignHook(0, nil), "no function")); err != nil {
			return err
		}
		if err := red.RegisterHook(func(b *ddp.Bucket) (*core.Tensor, error) { return op.Narrow(b.Buffer(), 0, 0, 1), nil }); err != nil {
			return err
		}
		if err := wrong(red.RegisterHook(ddp.AllReduceHook), "only one"); err != nil {
			return err
		}
		if err := wrong(backward(p, r, 0), "like the bucket's buffer"); err != nil {
			return err
		}
		q, err := ddp.New(mlp(), r.World, small)
		if err != nil {
			return err
		}
		if err := backward(q, r, 0); err != nil {
			return err
		}
		return wrong(q.Reducer().RegisterHook(ddp.AllReduceHook), "before the first step")
	})
}

// Go's own backward cannot run a hook of another language.
func TestForeignHookInAPlainBackward(t *testing.T) {
	spawn(t, 1, func(r *collective.Rank) error {
		p, err := ddp.New(mlp(), r.World, small)
		if err != nil {
			return err
		}
		if err := p.Reducer().RegisterForeignHook(42, nil); err != nil {
			return err
		}
		if err := backward(p, r, 0); err == nil || !strings.Contains(err.Error(), "another language") {
			return fmt.Errorf("got %v", err)
		}
		return p.Close()
	})
}

// Backward, and the end of a join, return a request for a hook of another language for each bucket.
func TestForeignHook(t *testing.T) {
	for _, o := range []ddp.Options{small, {FirstBucketBytes: 1, BucketBytes: 200, DelayAllReduce: true}, {BucketView: true}} {
		var want []float64
		in64(t, func() {
			m := seededMLP(7)
			x, y := batch(0, 0, 8)
			require.NoError(t, autograd.Backward(mse(nn.Call(m, x), y)))
			var err error
			want, err = grads(m)
			require.NoError(t, err)
		})
		spawn(t, 2, func(r *collective.Rank) error {
			m := rankMLP(r, 7)
			p, err := ddp.New(m, r.World, o)
			if err != nil {
				return err
			}
			if err := p.Reducer().RegisterForeignHook(42, nil); err != nil {
				return err
			}
			asked, next := 0, 0
			answer := func(q *autograd.Request) ([]*core.Tensor, error) {
				b := q.Payload.(*ddp.Bucket)
				if q.ID != 42 || q.What != autograd.WantAsked || b.Index() != next || len(b.Parameters()) != len(b.Gradients()) || q.Grads[0] != b.Buffer() {
					return nil, fmt.Errorf("request %d is wrong: %+v", asked, q)
				}
				asked++
				if next++; b.IsLast() {
					next = 0
				}
				out := op.Mul(q.Grads[0], core.Num(0.5)).Keep()
				return []*core.Tensor{out}, r.World.AllReduce(out, collective.Sum).Wait()
			}
			x, y := batch(0, r.Rank*4, r.Rank*4+4)
			if err := p.Reducer().JoinBegin(ddp.JoinOptions{DivideByActive: false}); err != nil {
				return err
			}
			for step := range 1 + r.Rank {
				nn.ZeroGrad(p)
				run, err := autograd.NewRun([]*core.Tensor{mse(nn.Call(p, x), y)}, nil, autograd.Options{})
				if err != nil {
					return err
				}
				for {
					q, err := run.Step()
					if err != nil {
						return err
					}
					if q == nil {
						break
					}
					a, err := answer(q)
					if err != nil {
						return err
					}
					if err := run.Resume(a); err != nil {
						return err
					}
				}
				run.Close()
				if asked == 0 || next != 0 {
					return fmt.Errorf("got %d requests, the next bucket is %d", asked, next)
				}
				if step == 0 {
					got, err := grads(p)
					if err != nil {
						return err
					}
					if err := near("gradient", got, want, 1e-9); err != nil {
						return err
					}
				}
			}
			var a []*core.Tensor
			for {
				q, err := p.Reducer().JoinEnd(a)
				if err != nil {
					return err
				}
				if q == nil {
					break
				}
				if a, err = answer(q); err != nil {
					return err
				}
			}
			return p.Close()
		})
	}
}

// Package recurrent has the GPU kernels of LSTM and GRU layers. Each time step is a product with the recurrent weights, followed by the
// gates. core/cpu/kernel/recurrent/c/recurrent.h describes the operands.
package recurrent

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/kernel/matmul"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	for _, lstm := range []bool{true, false} {
		forward, backward := contract.GRUSteps, contract.GRUStepsBackward
		if lstm {
			forward, backward = contract.LSTMSteps, contract.LSTMStepsBackward
		}
		kernel.Register(forward, func(r *shader.Recorder, c *core.Call) error { return recurrentCall(r, c, lstm) })
		kernel.Register(backward, func(r *shader.Recorder, c *core.Call) error { return recurrentBackwardCall(r, c, lstm) })
	}
}

// A recurrence is the sizes and recurrent weights of a layer.
type recurrence struct {
	steps, n, hidden, gates int
	reverse                 bool
	w                       *core.Operand
	sums                    *core.Operand // scratch memory for the product of a step
}

func newRecurrence(r *shader.Recorder, c *core.Call, y, w *core.Operand, lstm bool, width int) (*recurrence, error) {
	v := &recurrence{steps: y.Shape[0], n: y.Shape[1], hidden: y.Shape[2], gates: 3, reverse: contract.Reverse(c), w: w}
	if lstm {
		v.gates = 4
	}
	m, err := r.Reals(max(v.n*v.hidden*width, 1))
	v.sums = r.RealOperand(m, 0, v.n, v.hidden*width)
	return v, err
}

// position returns the index of a time step in the tensors.
func (v *recurrence) position(time int) int {
	if v.reverse {
		return v.steps - 1 - time
	}
	return time
}

// at returns the given step of an operand that has width elements for each sequence and step. An absent operand stays absent.
func (v *recurrence) at(o *core.Operand, step, width int) *core.Operand {
	return shader.Image(o, step, v.n*width)
}

// multiply sets sums to the product of rows [n, k] and the weights, viewed as a matrix [k, m] with the given strides.
func (v *recurrence) multiply(r *shader.Recorder, rows *core.Operand, k, m, row, col int) error {
	p := matmul.Product{M: v.n, N: m, K: k, Out: v.sums, A: rows, B: v.w, Alpha: 1, ARow: k, ACol: 1, BRow: row, BCol: col, CRow: m, CCol: 1,
		Batch: shader.Loop{Count: 1, Strides: make([][]int, 3)}}
	return p.Run(r)
}

// A cell is the program of a step's gates. Invocation i computes element i of [n, hidden].
type cell struct {
	s     *shader.Builder
	h     string
	count string
	n     int
}

func (v *recurrence) cell(r *shader.Recorder, name string) *cell {
	s := shader.New(r, name)
	return &cell{s: s, n: v.n * v.hidden, count: s.Uint(v.n * v.hidden), h: s.Uint(v.hidden)}
}

// in binds an input with the given number of gates. It returns a function that declares get_NAME(i, gate). An absent input is 0.
func (c *cell) in(name string, o *core.Operand, gates string) func(w *shader.Text) {
	value := "0.0"
	if c.s.Flag(o.Present() || o.Memory.Handle != 0) {
		value = fmt.Sprintf("ld_%s(%s + %s)", name, c.s.In(name, o, expr.F32, expr.Number), c.index(gates))
	}
	return func(w *shader.Text) { w.Func("get_"+name+"(i: u32, gate: u32) -> real", "return %s;", value) }
}

// out binds an operand that is read and written. It returns a function that declares get_NAME(i, gate) and put_NAME(i, gate, value).
func (c *cell) out(name string, o *core.Operand, gates string) func(w *shader.Text) {
	at := c.s.InOut(name, o, expr.F32) + " + " + c.index(gates)
	return func(w *shader.Text) {
		w.Func("put_"+name+"(i: u32, gate: u32, v: real)", "st_%s(%s, v);", name, at)
		w.Func("get_"+name+"(i: u32, gate: u32) -> real", "return ld_%s(%s);", name, at)
	}
}

func (c *cell) index(gates string) string {
	return "(i / " + c.h + ") * " + gates + " * " + c.h + " + gate * " + c.h + " + i % " + c.h
}

func (c *cell) run(r *shader.Recorder, functions []func(w *shader.Text), body string) error {
	if c.n == 0 {
		return nil
	}
	return c.s.Run(r, shader.GroupsFor(c.n), func(w *shader.Text) {
		for _, f := range functions {
			f(w)
		}
		w.Each(c.count)
		w.Put(body)
	})
}

// recurrentCall: y, acts and, for an LSTM, c = f(x, h0, w, c0 or bias) with int reverse.
func recurrentCall(r *shader.Recorder, c *core.Call, lstm bool) error {
	x, h0, w, y, acts := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Outs[0], &c.Outs[1]
	gates := 3
	if lstm {
		gates = 4
	}
	v, err := newRecurrence(r, c, y, w, lstm, gates)
	if err != nil {
		return err
	}
	for time := range v.steps {
		step := v.position(time)
		before := h0
		if time > 0 {
			before = v.at(y, v.position(time-1), v.hidden)
		}
		if !v.singleDispatch(r) {
			if err := v.multiply(r, before, v.hidden, v.gates*v.hidden, w.Strides[1], w.Strides[0]); err != nil {
				return err
			}
		}
		act := acts
		if len(acts.Shape) == 3 {
			act = v.at(acts, step, 4*v.hidden)
		}
		k := v.cell(r, c.Kernel.String())
		g := strconv.Itoa(v.gates) + "u"
		functions := []func(w *shader.Text){k.in("x", v.at(x, step, v.gates*v.hidden), g), k.out("y", v.at(y, step, v.hidden), "1u"), k.out("a", act, "4u")}
		body := ""
		if lstm {
			cells := &c.Ins[3]
			if time > 0 {
				cells = v.at(&c.Outs[2], v.position(time-1), v.hidden)
			}
			functions = append(functions, k.in("former", cells, "1u"), k.out("c", v.at(&c.Outs[2], step, v.hidden), "1u"))
			body = `
  let f0 = plait_sigmoid_f32(get_x(i, 0u) + get_s(i, 0u));
  let f1 = plait_sigmoid_f32(get_x(i, 1u) + get_s(i, 1u));
  let f2 = plait_tanh_f32(get_x(i, 2u) + get_s(i, 2u));
  let f3 = plait_sigmoid_f32(get_x(i, 3u) + get_s(i, 3u));
  let v = f1 * get_former(i, 0u) + f0 * f2;
  put_c(i, 0u, v);
  put_y(i, 0u, f3 * plait_tanh_f32(v));
  put_a(i, 0u, f0); put_a(i, 1u, f1); put_a(i, 2u, f2); put_a(i, 3u, f3);
`
		} else {
			bias := "0.0"
			if k.s.Flag(c.Ins[3].Present()) {
				bias = "ld_b(" + k.s.In("b", &c.Ins[3], expr.F32, expr.Number) + " + gate * " + k.h + " + i % " + k.h + ")"
			}
			functions = append(functions, k.in("former", before, "1u"), func(w *shader.Text) {
				w.Func("sum(i: u32, gate: u32) -> real", "return get_s(i, gate) + %s;", bias)
			})
			body = `
  let n = sum(i, 2u);
  let reset = plait_sigmoid_f32(get_x(i, 0u) + sum(i, 0u));
  let z = plait_sigmoid_f32(get_x(i, 1u) + sum(i, 1u));
  let next = plait_tanh_f32(get_x(i, 2u) + reset * n);
  put_y(i, 0u, next + z * (get_former(i, 0u) - next));
  put_a(i, 0u, reset); put_a(i, 1u, z); put_a(i, 2u, next); put_a(i, 3u, n);
`
		}
		if v.singleDispatch(r) {
			k.s.In("h", before, expr.F32, expr.Number)
			err = v.runStep(r, k, "h", before, false, functions, body)
		} else {
			err = k.run(r, slices.Insert(functions, 0, k.in("s", v.sums, g)), body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// recurrentBackwardCall: dx, carry and, for a GRU, ds = f(acts, y, h0, w, dy and, for an LSTM, c, c0 and dc) with int reverse.
func recurrentBackwardCall(r *shader.Recorder, c *core.Call, lstm bool) error {
	acts, y, h0, w, dy, dx, carry := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Ins[3], &c.Ins[4], &c.Outs[0], &c.Outs[1]
	v, err := newRecurrence(r, c, y, w, lstm, 1)
	if err != nil {
		return err
	}
	slopes := dx
	if !lstm {
		slopes = &c.Outs[2]
	}
	for _, o := range []*core.Operand{carry, v.sums} {
		if err := copying.Copy(r, &core.Call{Op: c.Op, Outs: []core.Operand{*o}, Ins: []core.Operand{{IsNumber: true}}}); err != nil {
			return err
		}
	}
	g := strconv.Itoa(v.gates) + "u"
	for time := v.steps - 1; time >= 0; time-- {
		step := v.position(time)
		var next *core.Operand
		if time < v.steps-1 {
			next = v.at(slopes, v.position(time+1), v.gates*v.hidden)
		}
		if next != nil && !v.singleDispatch(r) {
			if err := v.multiply(r, next, v.gates*v.hidden, v.hidden, w.Strides[0], w.Strides[1]); err != nil {
				return err
			}
		}
		former := func(first, all *core.Operand) *core.Operand {
			if time == 0 {
				return first
			}
			return v.at(all, v.position(time-1), v.hidden)
		}
		k := v.cell(r, c.Kernel.String())
		functions := []func(w *shader.Text){
			k.in("a", v.at(acts, step, 4*v.hidden), "4u"), k.in("dy", v.at(dy, step, v.hidden), "1u"),
			k.out("carry", carry, "1u"), k.out("dx", v.at(dx, step, v.gates*v.hidden), g),
		}
		body := ""
		if lstm {
			functions = append(functions, k.in("c", v.at(&c.Ins[5], step, v.hidden), "1u"), k.in("former", former(&c.Ins[6], &c.Ins[5]), "1u"),
				k.in("dc", v.at(&c.Ins[7], step, v.hidden), "1u"))
			body = `
  let f0 = get_a(i, 0u);
  let f1 = get_a(i, 1u);
  let f2 = get_a(i, 2u);
  let f3 = get_a(i, 3u);
  let t = plait_tanh_f32(get_c(i, 0u));
  let dh = get_s(i, 0u) + get_dy(i, 0u);
  let d = get_carry(i, 0u) + get_dc(i, 0u) + dh * f3 * (1.0 - t * t);
  put_carry(i, 0u, d * f1);
  put_dx(i, 0u, d * f2 * f0 * (1.0 - f0));
  put_dx(i, 1u, d * get_former(i, 0u) * f1 * (1.0 - f1));
  put_dx(i, 2u, d * f0 * (1.0 - f2 * f2));
  put_dx(i, 3u, dh * t * f3 * (1.0 - f3));
`
		} else {
			functions = append(functions, k.in("former", former(h0, y), "1u"), k.out("ds", v.at(slopes, step, 3*v.hidden), g))
			body = `
  let reset = get_a(i, 0u);
  let z = get_a(i, 1u);
  let next = get_a(i, 2u);
  let dh = get_s(i, 0u) + get_carry(i, 0u) + get_dy(i, 0u);
  let dn = dh * (1.0 - z) * (1.0 - next * next);
  let dr = dn * get_a(i, 3u) * reset * (1.0 - reset);
  let dz = dh * (get_former(i, 0u) - next) * z * (1.0 - z);
  put_carry(i, 0u, dh * z);
  put_dx(i, 0u, dr); put_dx(i, 1u, dz); put_dx(i, 2u, dn);
  put_ds(i, 0u, dr); put_ds(i, 1u, dz); put_ds(i, 2u, dn * reset);
`
		}
		if next != nil && v.singleDispatch(r) {
			through := "dx"
			if !lstm {
				through = "ds"
			}
			err = v.runStep(r, k, through, next, true, functions, body)
		} else {
			err = k.run(r, slices.Insert(functions, 0, k.in("s", v.sums, "1u")), body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

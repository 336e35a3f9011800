package op

func init() {
	x := Arg{Name: "input", Doc: "of shape [t, n, in]"}
	h0 := Arg{Name: "h0", Optional: true, Doc: "the first state, [n, hidden]; zeros if absent"}
	c0 := Arg{Name: "c0", Optional: true, Doc: "the first cell, [n, hidden]; zeros if absent"}
	wih, whh := Arg{Name: "w_ih", Doc: "[gates*hidden, in]"}, Arg{Name: "w_hh", Doc: "[gates*hidden, hidden]"}
	bih, bhh := Arg{Name: "b_ih", Optional: true}, Arg{Name: "b_hh", Optional: true}
	reverse := Arg{Name: "reverse", Field: "Reverse", Default: false, Doc: "run the steps from the last to the first"}
	back := RecurrentOptions{Reverse: true}
	register("recurrent",
		Row{Name: "lstm_layer", Func: LSTMLayer, Args: []Arg{x, h0, c0, wih, whh, bih, bhh, reverse},
			Doc: "One layer of long short-term memory in one direction: the states of all steps, and state and cell after the last.",
			Samples: []Sample{
				{Name: "forward", Loose: 4, Args: []any{Shaped(3, 2, 4), Shaped(2, 3), Shaped(2, 3), Shaped(12, 4), Shaped(12, 3), Shaped(12), Shaped(12)}},
				{Name: "reverse", Loose: 4, Args: []any{Shaped(2, 1, 2), Shaped(1, 3), Shaped(1, 3), Shaped(12, 2), Shaped(12, 3), Shaped(12), Shaped(12), back}},
				{Name: "no state", Loose: 4, Args: []any{Shaped(2, 2, 3), nil, nil, Shaped(4, 3), Shaped(4, 1), Shaped(4), nil}},
				{Name: "no bias", Loose: 4, Args: []any{Shaped(1, 2, 3), Shaped(2, 2), nil, Shaped(8, 3), Shaped(8, 2), nil, nil}},
			}},
		Row{Name: "gru_layer", Func: GRULayer, Args: []Arg{x, h0, wih, whh, bih, bhh, reverse},
			Doc: "One layer of gated recurrent units in one direction: the states of all steps, and the one after the last.",
			Samples: []Sample{
				{Name: "forward", Loose: 4, Args: []any{Shaped(3, 2, 4), Shaped(2, 3), Shaped(9, 4), Shaped(9, 3), Shaped(9), Shaped(9)}},
				{Name: "reverse", Loose: 4, Args: []any{Shaped(2, 1, 2), Shaped(1, 3), Shaped(9, 2), Shaped(9, 3), Shaped(9), Shaped(9), back}},
				{Name: "no state", Loose: 4, Args: []any{Shaped(2, 2, 3), nil, Shaped(3, 3), Shaped(3, 1), nil, Shaped(3)}},
				{Name: "no bias", Loose: 4, Args: []any{Shaped(1, 2, 3), Shaped(2, 2), Shaped(6, 3), Shaped(6, 2), nil, nil}},
			}},
	)
}

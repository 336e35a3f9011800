package pipeline

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
)

// A Kind is the kind of an [Action].
type Kind uint8

// The kinds of actions. A backward pass is one Backward action, or an InputGrad and, possibly much later, a WeightGrad.
const (
	Forward    Kind = iota // the stage's forward pass
	Backward               // the whole backward pass
	InputGrad              // the gradient of the stage's input, which the previous stage needs
	WeightGrad             // the gradients of the stage's parameters
	SendForward
	RecvForward // the stage's input
	SendBackward
	RecvBackward // the gradient of the stage's output
)

var kindNames = [...]string{"F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"}

func (k Kind) String() string { return kindNames[k] }

// Computes reports whether the action computes, as opposed to a send or receive.
func (k Kind) Computes() bool { return k <= WeightGrad }

// description returns the kind as words for error messages.
func (k Kind) description() string {
	return [...]string{"forward", "backward", "input gradient", "weight gradient", "sending the output", "receiving the input",
		"sending the gradient", "receiving the gradient"}[k]
}

// An Action is one entry of a schedule: Kind, for micro-batch Micro in stage Stage.
type Action struct {
	Kind         Kind
	Stage, Micro int
}

// String returns the stage, the kind and the micro-batch, such as 2F0 or 1SEND_B3.
func (a Action) String() string { return fmt.Sprint(a.Stage, a.Kind.String(), a.Micro) }

// ParseAction parses the format of [Action.String].
func ParseAction(text string) (Action, error) {
	fail := func() (Action, error) {
		return Action{}, core.Errorf(core.ValueError, "schedule", "got %q, want a stage, a kind of %s, and a micro-batch, such as 0F0", text, strings.Join(kindNames[:], " "))
	}
	digit := func(r rune) bool { return r >= '0' && r <= '9' }
	kind := strings.TrimFunc(text, digit)
	before, after, _ := strings.Cut(text, kind)
	stage, err := strconv.Atoi(before)
	if err != nil {
		return fail()
	}
	micro, err := strconv.Atoi(after)
	if err != nil {
		return fail()
	}
	for k, name := range kindNames {
		if name == kind {
			return Action{Kind(k), stage, micro}, nil
		}
	}
	return fail()
}

// peer returns the matching receive of a send, or the matching send of a receive.
func (a Action) peer() Action {
	switch a.Kind {
	case SendForward:
		return Action{RecvForward, a.Stage + 1, a.Micro}
	case RecvForward:
		return Action{SendForward, a.Stage - 1, a.Micro}
	case SendBackward:
		return Action{RecvBackward, a.Stage - 1, a.Micro}
	default:
		return Action{SendBackward, a.Stage + 1, a.Micro}
	}
}

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/core/safetensors"
)

// state is all of a run that is no tensor. A file has it as text.
type state struct {
	Config    Config
	Alphabet  string
	Step      int
	Generator [2]uint64 // seed and position
	Optimizer *optim.StateDict
	Schedule  optim.ScheduleState
}

const stateKey = "traingpt"

// state returns the run's state and its tensors by name.
func (t *trainer) state() (state, map[string]*core.Tensor) {
	s := state{
		Config: t.config, Alphabet: string(t.text.alphabet), Step: t.step,
		Optimizer: t.optimizer.StateDict(), Schedule: t.schedule.State(),
	}
	s.Generator[0], s.Generator[1] = t.generator.State()
	tensors := map[string]*core.Tensor{}
	for name, x := range nn.StateDict(t.model) {
		tensors["model."+name] = x
	}
	for name, x := range s.Optimizer.Flatten() {
		tensors["optimizer."+name] = x
	}
	return s, tensors
}

// save writes a checkpoint.
func (t *trainer) save(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	s, tensors := t.state()
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return safetensors.Save(path, tensors, map[string]string{stateKey: string(text)})
}

// loadTrainer returns a run that goes on where a checkpoint was saved.
func loadTrainer(path string, text *corpus) (*trainer, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var s state
	if err := json.Unmarshal([]byte(f.Metadata()[stateKey]), &s); err != nil {
		return nil, fmt.Errorf("%s: not a checkpoint of traingpt: %w", path, err)
	}
	if s.Alphabet != string(text.alphabet) {
		return nil, fmt.Errorf("%s: trained on text with other characters", path)
	}
	t, err := newTrainer(s.Config, text)
	if err != nil {
		return nil, err
	}
	model, optimizer := map[string]*core.Tensor{}, map[string]*core.Tensor{}
	for _, name := range f.Names() {
		x := f.Tensor(name)
		if err := x.Err(); err != nil {
			return nil, err
		}
		defer x.Release()
		if inner, ok := strings.CutPrefix(name, "model."); ok {
			model[inner] = x
		} else {
			optimizer[strings.TrimPrefix(name, "optimizer.")] = x
		}
	}
	if _, err := nn.LoadStateDict(t.model, model, true); err != nil {
		return nil, err
	}
	if err := s.Optimizer.Unflatten(optimizer); err != nil {
		return nil, err
	}
	if err := t.optimizer.LoadStateDict(s.Optimizer); err != nil {
		return nil, err
	}
	if err := t.schedule.Load(s.Schedule); err != nil {
		return nil, err
	}
	t.generator.SetState(s.Generator[0], s.Generator[1])
	t.step = s.Step
	return t, nil
}

// digest returns a hash of everything that a checkpoint would hold.
func (t *trainer) digest() ([sha256.Size]byte, error) {
	h := sha256.New()
	s, tensors := t.state()
	if err := json.NewEncoder(h).Encode(s); err != nil {
		return [sha256.Size]byte{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		bytes, err := tensors[name].Bytes()
		if err != nil {
			return [sha256.Size]byte{}, err
		}
		fmt.Fprintln(h, name, tensors[name].Shape())
		h.Write(bytes)
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

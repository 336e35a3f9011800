package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plait-ml/plait/core/safetensors"
	"github.com/stretchr/testify/require"
)

func tiny() (Config, *corpus) {
	text := strings.Repeat("func add(a, b int) int { return a + b }\n", 200)
	return Config{Width: 32, Layers: 1, Heads: 2, Context: 16, Dropout: 0.1, Batch: 8, Steps: 2 * passSteps, LR: 1e-2, Seed: 3}, newCorpus(text)
}

func TestTrainsSavesAndGoesOn(t *testing.T) {
	c, text := tiny()
	path := filepath.Join(t.TempDir(), "a", "checkpoint")
	run, err := newTrainer(c, text)
	require.NoError(t, err)
	first, err := run.validate()
	require.NoError(t, err)
	steps := 0
	count := func(int, float64) { steps++ }
	require.NoError(t, run.pass(t.Context(), count))
	require.NoError(t, run.save(path))
	require.NoError(t, run.pass(t.Context(), count))
	require.Equal(t, c.Steps, steps)
	last, err := run.validate()
	require.NoError(t, err)
	require.Less(t, last, first/2)
	require.NoError(t, sameAfterReload(t.Context(), path, text, run))

	sample, err := run.sample("func ", 20)
	require.NoError(t, err)
	require.Len(t, sample, 25)

	// A checkpoint that differs in one bit of one moment must be noticed, and so must another text.
	tensors, err := safetensors.Load(path)
	require.NoError(t, err)
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer f.Close()
	bytes, err := f.Bytes("optimizer.0.exp_avg")
	require.NoError(t, err)
	bytes[2] ^= 0x40
	changed := filepath.Join(t.TempDir(), "changed")
	tensors["optimizer.0.exp_avg"] = f.Tensor("optimizer.0.exp_avg")
	require.NoError(t, safetensors.Save(changed, tensors, f.Metadata()))
	require.ErrorContains(t, sameAfterReload(t.Context(), changed, text, run), "another model")
	_, err = loadTrainer(path, newCorpus("other characters"))
	require.ErrorContains(t, err, "other characters")
	require.NoError(t, os.WriteFile(changed, []byte("short"), 0o666))
	_, err = loadTrainer(changed, text)
	require.Error(t, err)
}

func TestCorpus(t *testing.T) {
	c := newCorpus("aé\tb" + strings.Repeat("ab", 8))
	require.Equal(t, "\t?ab", string(c.alphabet))
	require.Len(t, c.train, 18)
	require.Len(t, c.valid, 2)
	require.Equal(t, "a?\tb", c.decode(c.train[:4]))
	require.Equal(t, []int32{2, 3}, c.encode("a☃b"))

	w := windows{c.train, 5}
	require.Equal(t, 13, w.Len())
	batch, err := w.Batch([]int{0, 12})
	require.NoError(t, err)
	require.Equal(t, []int{2, 5}, batch[0].Shape())
	require.Equal(t, []int{2, 5}, batch[1].Shape())
	require.Zero(t, windows{c.train, 100}.Len())

	folder, err := goSource()
	require.NoError(t, err)
	read, err := readCorpus(folder, 200_000)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(read.train)+len(read.valid), 200_000)
	_, err = readCorpus(t.TempDir(), 1)
	require.ErrorContains(t, err, "too little")
}

func TestWrongArguments(t *testing.T) {
	c, _ := tiny()
	for _, wrong := range []func(o *options){
		func(o *options) { o.Steps = passSteps },
		func(o *options) { o.Steps++ },
		func(o *options) { o.Batch = 0 },
		func(o *options) { o.Width = -16 },
		func(o *options) { o.Heads = 0 },
		func(o *options) { o.Heads = o.Width - 1 },
	} {
		o := options{Config: c, text: t.TempDir()}
		wrong(&o)
		require.ErrorContains(t, run(t.Context(), o), "must be")
	}
}

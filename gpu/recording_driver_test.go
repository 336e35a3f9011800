package gpu

import (
	"sync"

	"github.com/plait-ml/plait/gpu/driver"
)

// RecordPrograms has the drivers keep the text of each program in WGSL that a GPU compiles. It is called before GPUs are listed, and returns a
// function that returns the texts, each once.
func RecordPrograms() (programs func() []string) {
	r := &recorder{seen: map[string]bool{}}
	for i, d := range drivers {
		drivers[i] = recordingDriver{d, r}
	}
	return func() []string { return r.texts }
}

type recorder struct {
	mu    sync.Mutex
	seen  map[string]bool
	texts []string
}

type recordingDriver struct {
	driver.Driver
	recorder *recorder
}

func (d recordingDriver) Open(index int) (driver.GPU, error) {
	g, err := d.Driver.Open(index)
	if err != nil {
		return nil, err
	}
	return recordingGPU{g, d.recorder}, nil
}

type recordingGPU struct {
	driver.GPU
	recorder *recorder
}

func (g recordingGPU) NewPipeline(p driver.Program) (driver.Pipeline, error) {
	r := g.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.seen[p.Source] {
		r.seen[p.Source] = true
		r.texts = append(r.texts, p.Source)
	}
	return g.GPU.NewPipeline(p)
}

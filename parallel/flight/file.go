package flight

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// File returns the path of a process's part in a folder.
func File(folder, world string, process int) string {
	return filepath.Join(folder, fmt.Sprintf("flight-%s-%d.json", world, process))
}

// Encode returns the part as JSON, of at most limit bytes if that is possible: the older operations are left out.
func (p *Part) Encode(limit int) []byte {
	cut := *p
	for {
		b, err := json.Marshal(&cut)
		if err != nil {
			return []byte("{}") // plain data can be written
		}
		n := len(cut.Operations)
		if len(b) <= limit || n == 0 {
			return b
		}
		cut.Operations = slices.SortedStableFunc(slices.Values(cut.Operations), func(a, b Operation) int { return cmp.Compare(a.Called, b.Called) })[n-n/2:]
	}
}

// Write writes the part to its file in a folder, which it makes if need be. An older part of the process is replaced as a whole.
func (p *Part) Write(folder string) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	path := File(folder, p.World, p.Process)
	fresh := fmt.Sprintf("%s.%d", path, p.PID)
	if err := os.WriteFile(fresh, b, 0o666); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// Read returns the records whose parts are in a folder, one for each world, the latest last. path may also be the file of a whole record, as
// [Record.JSON] writes it, or of one part. A part that cannot be read is missing in its record.
func Read(path string) ([]*Record, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		r, p, err := readFile(path)
		if err != nil {
			return nil, err
		}
		if p != nil {
			r = Merge([]*Part{p}, nil)
		}
		return []*Record{r}, nil
	}
	files, err := filepath.Glob(filepath.Join(escape(path), "flight-*.json"))
	if err != nil {
		return nil, err
	}
	worlds := map[string][]*Part{}
	var errs []error
	for _, file := range files {
		_, p, err := readFile(file)
		if err == nil && p == nil {
			err = fmt.Errorf("%s: not the part of a process", file)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		worlds[p.World] = append(worlds[p.World], p)
	}
	if len(worlds) == 0 {
		return nil, errors.Join(append(errs, fmt.Errorf("%s: no file flight-*.json that can be read", path))...)
	}
	var records []*Record
	for _, parts := range worlds {
		records = append(records, Merge(parts, nil))
	}
	slices.SortFunc(records, func(a, b *Record) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.World, b.World)) })
	return records, nil
}

// readFile reads a part, or a whole record.
func readFile(path string) (*Record, *Part, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var kind struct {
		Homes     []int           `json:"homes"`
		Processes json.RawMessage `json:"processes"`
	}
	if err := json.Unmarshal(b, &kind); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case kind.Homes != nil:
		var p Part
		if err := json.Unmarshal(b, &p); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		return nil, &p, nil
	case kind.Processes != nil:
		var r Record
		if err := json.Unmarshal(b, &r); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		return &r, nil, nil
	}
	return nil, nil, fmt.Errorf("%s: not a flight record", path)
}

// escape makes a path mean itself in a pattern.
func escape(path string) string {
	var b []byte
	for i := range len(path) {
		if c := path[i]; c == '*' || c == '?' || c == '[' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, path[i])
	}
	return string(b)
}

package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// header is what the first part of a file says.
type header struct {
	tensors  []Info // in the order of their bytes
	metadata map[string]string
	data     int64 // where the tensors' bytes begin in the file
}

// parseHeader reads and checks the header of a whole file. Its errors are *FormatError.
func parseHeader(file []byte) (*header, error) {
	if len(file) < lengthBytes {
		return nil, &FormatError{Reason: fmt.Sprintf("too short for a header length, got %d bytes, want at least %d", len(file), lengthBytes)}
	}
	length := binary.LittleEndian.Uint64(file)
	if length > MaxHeaderBytes {
		return nil, &FormatError{Reason: fmt.Sprintf("header too long, got %d bytes, want at most %d", length, MaxHeaderBytes)}
	}
	if left := uint64(len(file) - lengthBytes); length > left {
		return nil, &FormatError{Reason: fmt.Sprintf("header runs past the end of the file, got %d bytes, want at most %d", length, left)}
	}
	text := file[lengthBytes : lengthBytes+int64(length)]
	if len(text) == 0 || text[0] != '{' {
		return nil, &FormatError{Offset: lengthBytes, Reason: "header is not a JSON object"}
	}
	if !utf8.Valid(text) {
		return nil, &FormatError{Offset: lengthBytes, Reason: "header is not UTF-8"}
	}
	r := headerReader{text: text, dec: json.NewDecoder(bytes.NewReader(text))}
	r.dec.UseNumber()
	h, err := r.read()
	if err != nil {
		return nil, err
	}
	h.data = lengthBytes + int64(length)
	if err := h.checkLayout(int64(len(file)) - h.data); err != nil {
		return nil, err
	}
	return h, nil
}

// checkLayout orders the tensors by their bytes and checks that these fill size bytes without a gap or an overlap.
func (h *header) checkLayout(size int64) error {
	slices.SortFunc(h.tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End), cmp.Compare(a.Name, b.Name))
	})
	end, before := int64(0), "the header"
	for _, t := range h.tensors {
		fail := func(text string, args ...any) error {
			return &FormatError{Tensor: t.Name, Offset: h.data + t.Begin, Reason: fmt.Sprintf(text, args...)}
		}
		if t.Begin > t.End {
			return fail("data_offsets run backwards, got [%d, %d]", t.Begin, t.End)
		}
		if t.End > size {
			return fail("data_offsets run past the end of the file, got [%d, %d], want at most %d", t.Begin, t.End, size)
		}
		if t.Begin < end {
			return fail("bytes overlap those of %s, got begin %d, want %d", before, t.Begin, end)
		}
		if t.Begin > end {
			return fail("bytes leave a gap after %s, got begin %d, want %d", before, t.Begin, end)
		}
		bytes, err := byteCount(t.DType, t.Shape)
		if err != nil {
			return fail("%s", err)
		}
		if t.End-t.Begin != bytes {
			return fail("wrong byte count for shape %s of %s, got %d, want %d", showShape(t.Shape), t.DType, t.End-t.Begin, bytes)
		}
		end, before = t.End, "tensor "+quote(t.Name)
	}
	if end != size {
		return &FormatError{Offset: h.data + end, Reason: fmt.Sprintf("%d bytes after the last tensor", size-end)}
	}
	return nil
}

// headerReader reads the JSON token by token, because decoding into Go values would hide duplicate and misspelt keys.
type headerReader struct {
	text   []byte
	dec    *json.Decoder
	tensor string // the tensor being read
}

func (r *headerReader) fail(text string, args ...any) error {
	return &FormatError{Tensor: r.tensor, Offset: lengthBytes + r.dec.InputOffset(), Reason: fmt.Sprintf(text, args...)}
}

func (r *headerReader) token() (json.Token, error) {
	tok, err := r.dec.Token()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, r.fail("header ends inside its JSON")
	}
	if err != nil {
		return nil, r.fail("header is not JSON: %v", err)
	}
	return tok, nil
}

// expect reads a delimiter.
func (r *headerReader) expect(delim json.Delim, what string) error {
	tok, err := r.token()
	if err != nil {
		return err
	}
	if tok != delim {
		return r.fail("%s: got %s, want %q", what, showToken(tok), delim.String())
	}
	return nil
}

// object reads an object and calls visit at each key, to read the value. A key that comes twice is an error.
func (r *headerReader) object(what string, visit func(key string) error) error {
	if err := r.expect('{', what); err != nil {
		return err
	}
	seen := map[string]bool{}
	for {
		tok, err := r.token()
		if err != nil {
			return err
		}
		if tok == json.Delim('}') {
			return nil
		}
		key, ok := tok.(string)
		if !ok {
			return r.fail("%s: got %s, want a key", what, showToken(tok))
		}
		if seen[key] {
			return r.fail("%s: key %s comes twice", what, quote(key))
		}
		seen[key] = true
		if err := visit(key); err != nil {
			return err
		}
	}
}

func (r *headerReader) read() (*header, error) {
	h := &header{}
	err := r.object("header", func(key string) error {
		if key == metadataKey {
			return r.metadata(h)
		}
		r.tensor = key
		info, err := r.info()
		r.tensor = ""
		info.Name = key
		h.tensors = append(h.tensors, info)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, c := range r.text[r.dec.InputOffset():] {
		if c != ' ' {
			return nil, &FormatError{
				Offset: lengthBytes + r.dec.InputOffset() + int64(i),
				Reason: fmt.Sprintf("got %q after the header's JSON, want spaces", c),
			}
		}
	}
	return h, nil
}

func (r *headerReader) metadata(h *header) error {
	h.metadata = map[string]string{}
	return r.object(metadataKey, func(key string) error {
		value, err := r.str(metadataKey + " " + quote(key))
		h.metadata[key] = value
		return err
	})
}

func (r *headerReader) info() (Info, error) {
	var info Info
	var offsets []int64
	seen := 0
	err := r.object("entry", func(key string) error {
		seen++
		var err error
		switch key {
		case "dtype":
			var name string
			name, err = r.str(key)
			info.DType = DType(name)
		case "shape":
			info.Shape, err = r.integers(key)
		case "data_offsets":
			offsets, err = r.integers(key)
		default:
			err = r.fail("unknown key %s, want dtype, shape and data_offsets", quote(key))
		}
		return err
	})
	if err != nil {
		return info, err
	}
	if seen != 3 {
		return info, r.fail("incomplete entry, want dtype, shape and data_offsets")
	}
	if len(offsets) != 2 {
		return info, r.fail("data_offsets: got %d numbers, want 2", len(offsets))
	}
	info.Begin, info.End = offsets[0], offsets[1]
	return info, nil
}

func (r *headerReader) str(what string) (string, error) {
	tok, err := r.token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", r.fail("%s: got %s, want a string", what, showToken(tok))
	}
	return s, nil
}

// integers reads an array of numbers that are not negative; the result is never nil.
func (r *headerReader) integers(what string) ([]int64, error) {
	if err := r.expect('[', what); err != nil {
		return nil, err
	}
	list := []int64{}
	for {
		tok, err := r.token()
		if err != nil {
			return nil, err
		}
		if tok == json.Delim(']') {
			return list, nil
		}
		number, ok := tok.(json.Number)
		if !ok {
			return nil, r.fail("%s: got %s, want a number", what, showToken(tok))
		}
		// Unsigned parsing takes digits alone: no sign, fraction or exponent.
		n, err := strconv.ParseUint(number.String(), 10, 63)
		if err != nil {
			return nil, r.fail("%s: got %s, want an integer from 0 to 2^63-1", what, quote(number.String()))
		}
		list = append(list, int64(n))
	}
}

func showToken(tok json.Token) string {
	switch tok := tok.(type) {
	case nil:
		return "null"
	case string:
		return quote(tok)
	case json.Number:
		return quote(tok.String())
	case json.Delim:
		return fmt.Sprintf("%q", tok.String())
	}
	return fmt.Sprint(tok)
}

package data

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Collect makes a batch that is the slice of the samples.
func Collect[T any](samples []T) ([]T, error) { return samples, nil }

// Collate makes a batch of type B by stacking the samples along a new first dimension, as the parts of B ask for:
//
//   - a *core.Tensor is made of tensors, numbers or bools, or of slices or arrays of numbers,
//   - a []*core.Tensor of slices or arrays of tensors, as those of [TensorDataset] are: one for each place in them,
//   - a struct of structs: each exported field of that of the same name,
//   - a map of maps: each value of those of the same key,
//   - any other slice of its elements, such as a []string of strings.
//
// Errors: no samples; shapes, lengths or keys that differ from sample to sample; a B that the samples cannot become.
func Collate[T, B any](samples []T) (batch B, err error) {
	defer recovered(&err)
	if len(samples) == 0 {
		return batch, core.Errorf(core.ValueError, "collate", "no samples")
	}
	parts := make([]reflect.Value, len(samples))
	for i := range samples {
		parts[i] = reflect.ValueOf(&samples[i]).Elem()
	}
	err = collate("sample", parts, reflect.ValueOf(&batch).Elem())
	return batch, err
}

var tensorType = reflect.TypeFor[*core.Tensor]()

// collate sets out to the batch of parts, which are of one type; path names them in errors.
func collate(path string, parts []reflect.Value, out reflect.Value) error {
	from, to := parts[0].Type(), out.Type()
	list := from.Kind() == reflect.Slice || from.Kind() == reflect.Array
	switch {
	case to == tensorType && from == tensorType:
		return setTensor(path, out, func() *core.Tensor { return op.Stack(tensorsOf(parts), 0) })
	case to == tensorType && isNumber(from):
		return stackNumbers(path, parts, nil, out)
	case to == tensorType && list && isNumber(from.Elem()):
		return stackNumbers(path, parts, []int{parts[0].Len()}, out)
	case to.Kind() == reflect.Slice && to.Elem() == tensorType && list && from.Elem() == tensorType:
		return collatePlaces(path, parts, out)
	case to.Kind() == reflect.Struct && from.Kind() == reflect.Struct:
		return collateFields(path, parts, out)
	case to.Kind() == reflect.Map && from.Kind() == reflect.Map && from.Key() == to.Key():
		return collateMaps(path, parts, out)
	case to.Kind() == reflect.Slice && from.AssignableTo(to.Elem()):
		out.Set(reflect.MakeSlice(to, len(parts), len(parts)))
		for i, p := range parts {
			out.Index(i).Set(p)
		}
		return nil
	}
	return core.Errorf(core.TypeError, "collate", "%s: a %v cannot become a %v", path, from, to)
}

func tensorsOf(parts []reflect.Value) []*core.Tensor {
	tensors := make([]*core.Tensor, len(parts))
	for i, p := range parts {
		tensors[i] = p.Interface().(*core.Tensor)
	}
	return tensors
}

func setTensor(path string, out reflect.Value, make func() *core.Tensor) error {
	t := make()
	if err := t.Err(); err != nil {
		return fmt.Errorf("collate: %s: %w", path, err)
	}
	out.Set(reflect.ValueOf(t))
	return nil
}

// dtypeOfKind has the dtypes that numbers and bools become; an int is an int64.
var dtypeOfKind = map[reflect.Kind]core.DType{
	reflect.Bool: core.Bool, reflect.Int8: core.Int8, reflect.Int16: core.Int16, reflect.Int32: core.Int32, reflect.Int64: core.Int64,
	reflect.Uint8: core.Uint8, reflect.Uint16: core.Uint16, reflect.Uint32: core.Uint32, reflect.Uint64: core.Uint64,
	reflect.Int: core.Int64, reflect.Float32: core.Float32, reflect.Float64: core.Float64,
}

func isNumber(t reflect.Type) bool {
	_, ok := dtypeOfKind[t.Kind()]
	return ok
}

// stackNumbers makes a tensor of numbers (inner is nil) or of lists of them, of one length.
func stackNumbers(path string, parts []reflect.Value, inner []int, out reflect.Value) error {
	elem, each := parts[0].Type(), 1
	if inner != nil {
		elem, each = elem.Elem(), inner[0]
	}
	dtype := dtypeOfKind[elem.Kind()]
	if elem.Kind() == reflect.Int {
		elem = reflect.TypeFor[int64]()
	}
	all := reflect.MakeSlice(reflect.SliceOf(elem), len(parts)*each, len(parts)*each)
	for i, p := range parts {
		if inner == nil {
			all.Index(i).Set(p.Convert(elem))
			continue
		}
		if p.Len() != each {
			return core.Errorf(core.ShapeError, "collate", "%s: lengths differ, got %d and %d", path, each, p.Len())
		}
		if p.Type().Elem() == elem {
			reflect.Copy(all.Slice(i*each, (i+1)*each), p)
			continue
		}
		for k := range each {
			all.Index(i*each + k).Set(p.Index(k).Convert(elem))
		}
	}
	bytes := unsafe.Slice((*byte)(all.UnsafePointer()), all.Len()*int(elem.Size()))
	return setTensor(path, out, func() *core.Tensor {
		return core.FromBytes(dtype, bytes, append([]int{len(parts)}, inner...)...)
	})
}

func collatePlaces(path string, parts []reflect.Value, out reflect.Value) error {
	n := parts[0].Len()
	out.Set(reflect.MakeSlice(out.Type(), n, n))
	column := make([]reflect.Value, len(parts))
	for k := range n {
		for i, p := range parts {
			if p.Len() != n {
				return core.Errorf(core.ShapeError, "collate", "%s: lengths differ, got %d and %d", path, n, p.Len())
			}
			column[i] = p.Index(k)
		}
		if err := collate(fmt.Sprintf("%s[%d]", path, k), column, out.Index(k)); err != nil {
			return err
		}
	}
	return nil
}

func collateFields(path string, parts []reflect.Value, out reflect.Value) error {
	column := make([]reflect.Value, len(parts))
	for k := range out.NumField() {
		field := out.Type().Field(k)
		if !field.IsExported() {
			continue
		}
		if _, ok := parts[0].Type().FieldByName(field.Name); !ok {
			return core.Errorf(core.TypeError, "collate", "%s: a %v has no field %s", path, parts[0].Type(), field.Name)
		}
		for i, p := range parts {
			column[i] = p.FieldByName(field.Name)
		}
		if err := collate(path+"."+field.Name, column, out.Field(k)); err != nil {
			return err
		}
	}
	return nil
}

func collateMaps(path string, parts []reflect.Value, out reflect.Value) error {
	result := reflect.MakeMap(out.Type())
	column := make([]reflect.Value, len(parts))
	for _, key := range parts[0].MapKeys() {
		for i, p := range parts {
			value := p.MapIndex(key)
			if !value.IsValid() || p.Len() != parts[0].Len() {
				return core.Errorf(core.ValueError, "collate", "%s: keys differ, got %v and %v", path, parts[0].MapKeys(), p.MapKeys())
			}
			column[i] = value
		}
		value := reflect.New(out.Type().Elem()).Elem()
		if err := collate(fmt.Sprintf("%s[%v]", path, key), column, value); err != nil {
			return err
		}
		result.SetMapIndex(key, value)
	}
	out.Set(result)
	return nil
}

// Renders a chart by Go's own text/template, which is what helm renders by, where there is no helm. The functions
// below are helm's and sprig's, as far as the chart uses them; an unknown one is an error.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"sort"
	"strings"
	"text/template"
)

type input struct {
	Files map[string]string
	Data  map[string]any
}

func indent(n int, text string) string {
	pad := strings.Repeat(" ", n)
	return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

func scalar(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// block style, keys in order; scalars as JSON writes them, which YAML reads
func yaml(value any, depth int) string {
	pad, lines := strings.Repeat("  ", depth), []string{}
	put := func(head string, inner any) {
		switch v := reflect.ValueOf(inner); {
		case v.Kind() == reflect.Map && v.Len() > 0, v.Kind() == reflect.Slice && v.Len() > 0:
			lines = append(lines, pad+head, yaml(inner, depth+1))
		default:
			lines = append(lines, pad+head+" "+scalar(inner))
		}
	}
	switch v := value.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		for _, key := range keys {
			put(key+":", v[key])
		}
	case []any:
		for _, each := range v {
			put("-", each)
		}
	default:
		return pad + scalar(value)
	}
	return strings.Join(lines, "\n")
}

func main() {
	var in input
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		panic(err)
	}
	chart := template.New("chart").Option("missingkey=error")
	number := func(value any) int64 { return int64(value.(float64)) }
	chart.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out bytes.Buffer
			err := chart.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"required": func(message string, value any) (any, error) {
			if value == nil || value == "" {
				return nil, errors.New(message)
			}
			return value, nil
		},
		"toYaml":     func(value any) string { return yaml(value, 0) },
		"toJson":     scalar,
		"quote":      func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"toString":   func(value any) string { return fmt.Sprint(value) },
		"nindent":    func(n int, text string) string { return "\n" + indent(n, text) },
		"upper":      strings.ToUpper,
		"trunc":      func(n int, text string) string { return text[:min(n, len(text))] },
		"trimSuffix": func(suffix, text string) string { return strings.TrimSuffix(text, suffix) },
		"kindIs":     func(kind string, value any) bool { return reflect.TypeOf(value).Kind().String() == kind },
		"floor":      func(value any) float64 { return math.Floor(value.(float64)) },
		"int":        number,
		"int64":      number,
		"add":        func(a int64, b int) int64 { return a + int64(b) },
		"join": func(by string, values []any) string {
			texts := []string{}
			for _, value := range values {
				texts = append(texts, fmt.Sprint(value))
			}
			return strings.Join(texts, by)
		},
	})
	for name, text := range in.Files {
		template.Must(chart.New(name).Parse(text))
	}
	rendered := map[string]string{}
	for name := range in.Files {
		var out bytes.Buffer
		if err := chart.ExecuteTemplate(&out, name, in.Data); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		rendered[name] = out.String()
	}
	if err := json.NewEncoder(os.Stdout).Encode(rendered); err != nil {
		panic(err)
	}
}

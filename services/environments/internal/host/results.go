package host

import (
	"context"
	"io"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/testreport"
)

// maxReports is how many files of reports are read at once.
const maxReports = 200

// testResults reads test reports of files, or of what a command printed.
func (h *Host) testResults(ctx context.Context, p *place, a machine.TestResultsArgs) (any, error) {
	given := 0
	for _, is := range []bool{len(a.Paths) > 0, a.Glob != "", a.Exec != ""} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, problem.New(problem.Invalid, "give one of paths, glob and exec")
	case !testreport.Valid(a.Format):
		return nil, problem.New(problem.Invalid, "format %.40q is not auto, junit or go", a.Format)
	case len(a.Paths) > maxReports:
		return nil, problem.New(problem.Invalid, "at most %d paths", maxReports)
	}
	s := &testreport.Summary{TestResults: machine.TestResults{Failures: []machine.TestFailed{}}}
	if a.Exec != "" {
		if err := ofCall(a.Exec); err != nil {
			return nil, err
		}
		raw, err := h.printed(ctx, p, a.Exec, s)
		if err != nil {
			return nil, err
		}
		s.Add(a.Exec, a.Format, raw)
		return s.TestResults, nil
	}
	if a.Glob != "" {
		var why string
		var err error
		if a.Paths, why, err = p.files.Match(ctx, a.Glob); err != nil {
			return nil, err
		}
		if len(a.Paths) == 0 {
			return nil, problem.New(problem.NotFound, "no file matches %.200q", a.Glob)
		}
		if len(a.Paths) > maxReports {
			why, a.Paths = "there are more files than are read", a.Paths[:maxReports]
		}
		if why != "" {
			s.Truncate(why)
		}
	}
	left := testreport.MaxAll
	for _, path := range a.Paths {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		raw, err := readReport(p, path)
		switch left -= len(raw); {
		case err != nil:
			s.Fault(path, problem.DetailOf(err).Message)
		case left < 0:
			s.Truncate("the reports are larger than are read")
			return s.TestResults, nil
		default:
			s.Files++
			s.Add(path, a.Format, raw)
		}
	}
	return s.TestResults, nil
}

func readReport(p *place, path string) ([]byte, error) {
	f, err := p.files.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, testreport.MaxReport+1))
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "it cannot be read")
	}
	if len(raw) > testreport.MaxReport {
		return nil, problem.New(problem.TooLarge, "it is over %d bytes", testreport.MaxReport)
	}
	return raw, nil
}

// printed gives what a command printed on its standard output so far.
func (h *Host) printed(ctx context.Context, p *place, exec string, s *testreport.Summary) (raw []byte, err error) {
	at := int64(0)
	for {
		out, err := p.shim.Read(ctx, exec, at, maxRead, 0)
		if err != nil {
			return nil, err
		}
		for _, piece := range out.Pieces {
			switch streams[piece.Stream] {
			case "stdout":
				raw = append(raw, piece.Data...)
			case "gap":
				s.Truncate("some of the output was not kept")
			}
		}
		if len(raw) > testreport.MaxAll {
			s.Truncate("the output is larger than is read")
			return raw[:testreport.MaxAll], nil
		}
		if out.Next == at {
			s.Running = out.Exec.Running()
			return raw, nil
		}
		at = out.Next
	}
}

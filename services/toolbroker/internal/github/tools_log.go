package github

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

var jobLogsTool = tool{
	name: "get_job_logs", effect: connection.Pure, risk: exposes,
	about:    "The end of a job's log, or of the logs of a run's jobs (failed_only: of those that failed).",
	required: inRepo(),
	optional: []param{
		of("job_id", aNum, "", func(a *arguments) *int64 { return &a.Job }, number[int64](1, maxID)).also("jobId"), runID.told("in place of job_id"),
		of("failed_only", aBool, "", func(a *arguments) *bool { return &a.FailedOnly }, boolean).also("failedOnly"),
		of("return_content", aBool, "false: only which jobs there are", func(a *arguments) *bool { return &a.WithContent }, boolean).also("returnContent"),
		of("tail_lines", `{"type":"integer","minimum":1,"maximum":5000}`, "200 when left out", func(a *arguments) *int { return &a.TailLines }, number(1, 5000)).also("tailLines"),
	},
	routes: []string{"GET {repo}/actions/jobs/{number}/logs", "GET {repo}/actions/runs/{number}/jobs"}, needs: permissions{"actions": "read"},
	call: getJobLogs,
}

// Bounds of logs.
const (
	maxLogs  = 8        // jobs of a run whose logs are fetched
	maxLog   = 64 << 20 // of one log that is read to find its end
	logShown = 72 << 10 // over all logs of an answer
)

type jobLog struct {
	job
	Log       string `json:"log,omitempty"`
	Truncated bool   `json:"truncated"`
	Error     string `json:"error,omitempty"`
}

func getJobLogs(ctx context.Context, s session, a arguments) (any, error) {
	if a.Job == 0 && a.Run == 0 || a.Job != 0 && a.Run != 0 {
		return nil, problem.New(problem.Invalid, "one of the arguments job_id and run_id is needed")
	}
	content := !a.has("return_content") || a.WithContent
	if a.Job != 0 {
		out := jobLog{job: job{ID: a.Job}}
		if !content {
			return out, nil
		}
		err := out.fetch(ctx, s, a, logShown)
		return out, err
	}
	jobs, resp, err := s.Actions.ListWorkflowJobs(ctx, a.Owner, a.Repo, a.Run, &github.ListWorkflowJobsOptions{Filter: "latest", ListOptions: github.ListOptions{PerPage: 100}})
	if err != nil {
		return nil, err
	}
	chosen := jobs.Jobs
	if a.FailedOnly {
		chosen = only(chosen, func(j *github.WorkflowJob) bool { return j.GetConclusion() == "failure" })
	}
	out := listed(chosen, resp, func(c *cutter, j *github.WorkflowJob) jobLog { return jobLog{job: shownJob(c, j)} })
	if !content || len(out.Items) == 0 {
		return out, nil
	}
	if len(out.Items) > maxLogs {
		out.LeftOff, out.Truncated, out.Note = len(out.Items)-maxLogs, true, "the logs of the other jobs are left out; ask for them by job_id"
		out.Items = out.Items[:maxLogs]
	}
	for i := range out.Items {
		one := &out.Items[i]
		err := one.fetch(ctx, s, a, logShown/len(out.Items))
		var why *refusal
		switch {
		case errors.As(err, &why):
			one.Error = why.Text
		case refusedWith(err, http.StatusNotFound, http.StatusGone) != nil:
			one.Error = "there is no log (any more)"
		case err != nil:
			return nil, err
		}
		out.Truncated = out.Truncated || one.Truncated
	}
	return out, nil
}

// fetch reads the end of the job's log. GitHub answers with where it is; what is there is fetched without a credential,
// over a way out of its own, if the connection allows the host at all (go-github#4190).
func (l *jobLog) fetch(ctx context.Context, s session, a arguments, most int) error {
	req, err := s.NewRequest(http.MethodGet, a.at("/actions/jobs/%d/logs", l.ID), nil)
	if err != nil {
		return err
	}
	resp, err := s.BareDo(ctx, req)
	moved := refusedWith(err, http.StatusFound)
	if moved == nil {
		if err == nil { // GitHub keeps no logs itself
			resp.Body.Close()
			err = incomplete("place of the log")
		}
		return err
	}
	to, err := url.Parse(moved.Response.Header.Get("Location"))
	if err != nil || to.Host == "" {
		return incomplete("place of the log")
	}
	body, err := s.provider.download(ctx, to)
	if err != nil {
		return err
	}
	defer body.Close()
	l.Log, l.Truncated, err = tail(body, a.tailLines(), most)
	if err != nil {
		return problem.Wrap(err, problem.Upstream, "the log ended early")
	}
	return nil
}

func (a arguments) tailLines() int {
	if a.TailLines == 0 {
		return 200
	}
	return a.TailLines
}

// download opens a file at a host that the connection allows. The URL is a secret: it is in no error.
func (p *Provider) download(ctx context.Context, at *url.URL) (io.ReadCloser, error) {
	outside := &refusal{Text: "the log is kept at " + at.Host + ", which this connection does not allow; an owner adds it to the connection's hosts"}
	if p.files == nil {
		return nil, outside
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, incomplete("place of the log")
	}
	resp, err := p.files.RoundTrip(r)
	if problem.CodeOf(err) == problem.Denied {
		return nil, outside
	}
	if err != nil {
		return nil, problem.New(problem.Upstream, "%s does not answer", at.Host)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, &refusal{Text: at.Host + " answered " + resp.Status + " for the log"}
	}
	return resp.Body, nil
}

// tail is the last lines of a text, of at most so many bytes, and whether there was more.
func tail(r io.Reader, lines, most int) (string, bool, error) {
	in := bufio.NewReaderSize(io.LimitReader(r, maxLog+1), 64<<10)
	var kept [][]byte // a window of the last lines
	size, read, more := 0, 0, false
	for {
		line, err := in.ReadSlice('\n')
		read += len(line)
		if len(line) > 0 {
			kept = append(kept, append([]byte(nil), line...))
			size += len(line)
		}
		for len(kept) > lines || size > most && len(kept) > 1 {
			size -= len(kept[0])
			kept, more = kept[1:], true
		}
		switch {
		case err == nil, errors.Is(err, bufio.ErrBufferFull): // a long line counts as several
		case errors.Is(err, io.EOF):
			if read > maxLog {
				return "", true, &refusal{Text: "the log is over 64 MiB, and its end is out of reach"}
			}
			var out []byte
			for _, l := range kept {
				out = append(out, l...)
			}
			if len(out) > most {
				out, more = out[len(out)-most:], true
			}
			return string(out), more, nil
		default:
			return "", false, err
		}
	}
}

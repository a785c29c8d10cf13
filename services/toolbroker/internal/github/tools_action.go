package github

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

var (
	toResource = func(a *arguments) *string { return &a.Resource }
	toWorkflow = func(a *arguments) *string { return &a.Workflow }
)

// wordOrNumber reads an id, or the file name of a workflow.
func wordOrNumber(name string, raw json.RawMessage) (string, error) {
	if n, err := number[int64](1, maxID)(name, raw); err == nil {
		return strconv.FormatInt(n, 10), nil
	}
	s, err := word(name, raw)
	if err == nil && (s == "." || s == "..") {
		err = problem.New(problem.Invalid, "argument %s is neither an id nor the file name of a workflow", name)
	}
	return s, err
}

var actionTools = []tool{
	{
		name: "actions_list", effect: connection.Pure, risk: reads,
		about: "List of GitHub Actions: list_workflows; list_workflow_runs, of one workflow when resource_id is its id or file name; " +
			"list_workflow_jobs and list_workflow_run_artifacts of the run in resource_id.",
		required: append([]param{method("list_workflows", "list_workflow_runs", "list_workflow_jobs", "list_workflow_run_artifacts")}, inRepo()...),
		optional: []param{of("resource_id", aText, "", toResource, wordOrNumber).also("resourceId"), branch.told("only runs of this branch"),
			of("event", aText, "only runs of this event", func(a *arguments) *string { return &a.Event }, word),
			of("actor", aText, "only runs by this user", func(a *arguments) *string { return &a.Actor }, userName),
			of("status", aText, "only runs of this status or conclusion", func(a *arguments) *string { return &a.Status }, word), page, perPage},
		routes: []string{"GET {repo}/actions/workflows", "GET {repo}/actions/runs", "GET {repo}/actions/workflows/{id}/runs",
			"GET {repo}/actions/runs/{number}/jobs", "GET {repo}/actions/runs/{number}/artifacts"},
		needs: permissions{"actions": "read"},
		call:  actionsList,
	},
	{
		name: "actions_get", effect: connection.Pure, risk: reads,
		about:    "Read a workflow (resource_id: its id or file name), a workflow run, a job, or how long a run's jobs took.",
		required: append([]param{method("get_workflow", "get_workflow_run", "get_workflow_job", "get_workflow_run_usage")}, inRepo(of("resource_id", aText, "", toResource, wordOrNumber).also("resourceId"))...),
		routes: []string{"GET {repo}/actions/workflows/{id}", "GET {repo}/actions/runs/{number}", "GET {repo}/actions/jobs/{number}",
			"GET {repo}/actions/runs/{number}/timing"},
		needs: permissions{"actions": "read"},
		call:  actionsGet,
	},
	jobLogsTool,
	{
		name: "actions_run_trigger", effect: connection.Opaque, risk: destructive,
		about: "Act on GitHub Actions: run_workflow (workflow_id and ref), rerun_workflow_run, rerun_failed_jobs, cancel_workflow_run, " +
			"delete_workflow_run_logs (run_id). A workflow runs with the repository's secrets.",
		required: append([]param{method("run_workflow", "rerun_workflow_run", "rerun_failed_jobs", "cancel_workflow_run", "delete_workflow_run_logs")}, inRepo()...),
		optional: []param{of("workflow_id", aText, "id or file name", toWorkflow, wordOrNumber).also("workflowId"), ref.told("branch or tag to run on"),
			of("inputs", `{"type":"object"}`, "the workflow's inputs", func(a *arguments) *map[string]string { return &a.Inputs }, readInputs), runID},
		routes: []string{"POST {repo}/actions/workflows/{id}/dispatches", "POST {repo}/actions/runs/{number}/rerun", "POST {repo}/actions/runs/{number}/rerun-failed-jobs",
			"POST {repo}/actions/runs/{number}/cancel", "DELETE {repo}/actions/runs/{number}/logs"},
		needs: permissions{"actions": "write"},
		call:  runTrigger,
	},
}

type workflowShown struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	Path  string `json:"path"`
	State string `json:"state"`
	URL   string `json:"url"`
}

func shownWorkflow(_ *cutter, w *github.Workflow) workflowShown {
	return workflowShown{w.GetID(), w.GetName(), w.GetPath(), w.GetState(), w.GetHTMLURL()}
}

type run struct {
	ID         int64             `json:"id"`
	Name       string            `json:"name"`
	Title      string            `json:"title"`
	Status     string            `json:"status"`
	Conclusion string            `json:"conclusion,omitempty"`
	Event      string            `json:"event"`
	Branch     string            `json:"branch"`
	SHA        string            `json:"sha"`
	Attempt    int               `json:"attempt"`
	Actor      string            `json:"actor"`
	Created    *github.Timestamp `json:"created,omitempty"`
	URL        string            `json:"url"`
}

func shownRun(c *cutter, r *github.WorkflowRun) run {
	return run{r.GetID(), r.GetName(), c.text(r.GetDisplayTitle(), maxShort), r.GetStatus(), r.GetConclusion(), r.GetEvent(), r.GetHeadBranch(), r.GetHeadSHA(),
		r.GetRunAttempt(), r.GetActor().GetLogin(), r.CreatedAt, r.GetHTMLURL()}
}

type job struct {
	ID         int64             `json:"id"`
	Name       string            `json:"name"`
	Status     string            `json:"status"`
	Conclusion string            `json:"conclusion,omitempty"`
	Started    *github.Timestamp `json:"started,omitempty"`
	Completed  *github.Timestamp `json:"completed,omitempty"`
	Failed     []string          `json:"failed_steps,omitempty"`
	URL        string            `json:"url"`
}

func shownJob(_ *cutter, j *github.WorkflowJob) job {
	out := job{ID: j.GetID(), Name: j.GetName(), Status: j.GetStatus(), Conclusion: j.GetConclusion(), Started: j.StartedAt, Completed: j.CompletedAt, URL: j.GetHTMLURL()}
	for _, step := range j.Steps {
		if step.GetConclusion() == "failure" {
			out.Failed = append(out.Failed, step.GetName())
		}
	}
	return out
}

type artifact struct {
	ID      int64             `json:"id"`
	Name    string            `json:"name"`
	Bytes   int64             `json:"bytes"`
	Expired bool              `json:"expired"`
	Created *github.Timestamp `json:"created,omitempty"`
}

// resourceID is resource_id as the id that most methods need.
func (a arguments) resourceID() (int64, error) {
	id, err := strconv.ParseInt(a.Resource, 10, 64)
	if err != nil {
		return 0, problem.New(problem.Invalid, "argument resource_id has to be an id, which method %s needs", a.Method)
	}
	return id, nil
}

func actionsList(ctx context.Context, s session, a arguments) (any, error) {
	opts := a.list()
	switch a.Method {
	case "list_workflows":
		got, resp, err := s.Actions.ListWorkflows(ctx, a.Owner, a.Repo, &opts)
		if err != nil {
			return nil, err
		}
		return counted(listed(got.Workflows, resp, shownWorkflow), got.GetTotalCount()), nil
	case "list_workflow_runs":
		at := "/actions/runs"
		if a.Resource != "" {
			at = "/actions/workflows/" + a.Resource + "/runs"
		}
		q := pages(opts)
		for name, v := range map[string]string{"branch": a.Branch, "event": a.Event, "actor": a.Actor, "status": a.Status} {
			if v != "" {
				q.Set(name, v)
			}
		}
		got, resp, err := get[github.WorkflowRuns](ctx, s, a.at("%s", at), q)
		if err != nil {
			return nil, err
		}
		return counted(listed(got.WorkflowRuns, resp, shownRun), got.GetTotalCount()), nil
	}
	id, err := a.resourceID()
	if err != nil {
		return nil, err
	}
	if a.Method == "list_workflow_jobs" {
		got, resp, err := s.Actions.ListWorkflowJobs(ctx, a.Owner, a.Repo, id, &github.ListWorkflowJobsOptions{ListOptions: opts})
		if err != nil {
			return nil, err
		}
		return counted(listed(got.Jobs, resp, shownJob), got.GetTotalCount()), nil
	}
	got, resp, err := s.Actions.ListWorkflowRunArtifacts(ctx, a.Owner, a.Repo, id, &opts)
	if err != nil {
		return nil, err
	}
	return counted(listed(got.Artifacts, resp, func(_ *cutter, f *github.Artifact) artifact {
		return artifact{f.GetID(), f.GetName(), f.GetSizeInBytes(), f.GetExpired(), f.CreatedAt}
	}), int(got.GetTotalCount())), nil
}

func counted[T any](p *shown[T], total int) *shown[T] {
	p.Total = total
	return p
}

type usage struct {
	Milliseconds int64 `json:"run_duration_ms"`
}

func actionsGet(ctx context.Context, s session, a arguments) (any, error) {
	if a.Method == "get_workflow" {
		w, _, err := s.Actions.GetWorkflowByFileName(ctx, a.Owner, a.Repo, a.Resource) // GitHub takes an id in its place
		if err != nil {
			return nil, err
		}
		return shownWorkflow(nil, w), nil
	}
	id, err := a.resourceID()
	if err != nil {
		return nil, err
	}
	switch a.Method {
	case "get_workflow_run":
		r, _, err := s.Actions.GetWorkflowRunByID(ctx, a.Owner, a.Repo, id)
		if err != nil {
			return nil, err
		}
		return shownRun(new(cutter), r), nil
	case "get_workflow_job":
		j, _, err := s.Actions.GetWorkflowJobByID(ctx, a.Owner, a.Repo, id)
		if err != nil {
			return nil, err
		}
		return shownJob(nil, j), nil
	}
	u, _, err := s.Actions.GetWorkflowRunUsageByID(ctx, a.Owner, a.Repo, id)
	if err != nil {
		return nil, err
	}
	return usage{u.GetRunDurationMS()}, nil
}

func runTrigger(ctx context.Context, s session, a arguments) (any, error) {
	if a.Method == "run_workflow" {
		if a.Workflow == "" || a.Ref == "" {
			return nil, problem.New(problem.Invalid, "arguments workflow_id and ref are needed by method run_workflow")
		}
		type dispatch struct {
			Ref    string            `json:"ref"`
			Inputs map[string]string `json:"inputs,omitempty"`
		}
		return acted(ctx, s, http.MethodPost, a.at("/actions/workflows/%s/dispatches", a.Workflow), dispatch{a.Ref, a.Inputs}, "GitHub will start the workflow; actions_list shows its run in a moment")
	}
	if a.Run == 0 {
		return nil, problem.New(problem.Invalid, "argument run_id is missing, which method %s needs", a.Method)
	}
	at := a.at("/actions/runs/%d", a.Run)
	switch a.Method {
	case "rerun_workflow_run":
		return acted(ctx, s, http.MethodPost, at+"/rerun", nil, "GitHub will run it again")
	case "rerun_failed_jobs":
		return acted(ctx, s, http.MethodPost, at+"/rerun-failed-jobs", nil, "GitHub will run the failed jobs again")
	case "cancel_workflow_run":
		return acted(ctx, s, http.MethodPost, at+"/cancel", nil, "GitHub will cancel the run")
	}
	return acted(ctx, s, http.MethodDelete, at+"/logs", nil, "the run's logs are deleted")
}

// acted makes a request whose answer says nothing but that it was taken, now (204) or for later (202).
func acted(ctx context.Context, s session, method, path string, body any, text string) (any, error) {
	req, err := s.NewRequest(method, path, body)
	if err != nil {
		return nil, err
	}
	resp, err := s.Do(ctx, req, nil)
	if resp != nil && resp.StatusCode == http.StatusAccepted {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return done{Done: text}, nil
}

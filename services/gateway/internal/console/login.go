package console

import (
	"net/http"
)

// showLogin only shows a button: programs that preview links follow them, and would use the code up.
func (c *Console) showLogin(w http.ResponseWriter, r *http.Request) error {
	return show(w, http.StatusOK, "login", frame{Title: "Log in", Content: r.URL.Query().Get("code")})
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) error {
	// A page of another site that logs somebody in under its own account could watch what they do next.
	if err := c.Site.CheckOrigin(r); err != nil {
		return err
	}
	if err := form(w, r); err != nil {
		return err
	}
	cookie, err := c.Gate.Login(r, r.PostForm.Get("code"))
	if err != nil {
		return err
	}
	http.SetCookie(w, cookie)
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) error {
	if err := c.Site.CheckOrigin(r); err != nil {
		return err
	}
	http.SetCookie(w, c.Gate.Logout(r))
	return show(w, http.StatusOK, "bye", frame{Title: "Logged out"})
}

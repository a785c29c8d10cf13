module github.com/execwarden/execwarden/schemas

go 1.26.0

module github.com/plait-ml/plait

go 1.26

// What is built there comes and goes while the Go command looks for packages.
ignore ./build

require (
	github.com/cogentcore/webgpu v0.23.0
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5
)

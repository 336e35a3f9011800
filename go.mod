module github.com/plait-ml/plait

go 1.26

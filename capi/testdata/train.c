// Trains a network of two layers on exclusive or, through the C functions alone, and prints its answers.
#include <stdio.h>
#include <stdlib.h>

#include "plait.h"

enum { CASES = 4, INPUTS = 2, HIDDEN = 16, PARAMETERS = 4, STEPS = 1000 };

static const double rate = 0.1;

// check ends the program with the message of an error, and returns any other result.
static int64_t check(int64_t result) {
	if (result < 0) {
		char *message = plait_error_message(result);
		fprintf(stderr, "%s\n", message);
		free(message);
		plait_error_release(result);
		exit(1);
	}
	return result;
}

// fails releases the error that a call must have returned, and checks its kind.
static void fails(int64_t result, int64_t kind, const char *what) {
	if (result >= 0 || plait_error_kind(result) != kind) {
		fprintf(stderr, "%s: got %lld, want an error of kind %lld\n", what, (long long)result, (long long)kind);
		exit(1);
	}
	plait_error_release(result);
}

static plait_tensor from(const float *values, int64_t rows, int64_t columns) {
	int64_t shape[] = {rows, columns};
	return check(plait_tensor_from_memory(values, rows * columns * (int64_t)sizeof *values, PLAIT_FLOAT32, shape, 2,
			PLAIT_DEFAULT));
}

static plait_tensor parameter(int64_t rows, int64_t columns) {
	int64_t shape[] = {rows, columns};
	int64_t dims = rows > 0 ? 2 : 1; // rows 0: a bias
	plait_tensor t = check(plait_zeros(dims == 2 ? shape : shape + 1, dims, PLAIT_FLOAT32, PLAIT_DEFAULT, false));
	check(plait_uniform_in_place(t, -1, 1, 0));
	check(plait_requires_grad_set(t, true));
	return t;
}

static plait_tensor predict(plait_tensor x, const plait_tensor p[PARAMETERS]) {
	plait_tensor hidden = check(plait_linear(x, p[0], p[1]));
	plait_tensor active = check(plait_tanh(hidden));
	plait_tensor out = check(plait_linear(active, p[2], p[3]));
	plait_tensor_release(hidden);
	plait_tensor_release(active);
	return out;
}

static void backward(plait_tensor loss) {
	plait_object pass = check(plait_backward_new(&loss, NULL, 1, NULL, -1, false, false));
	while (check(plait_backward_step(pass)) > 0) {
		check(plait_backward_answer(pass, NULL, 0));
	}
	plait_object_release(pass);
}

static void descend(plait_tensor parameter) {
	plait_tensor grad = check(plait_grad_get(parameter));
	check(plait_mul_in_place(grad, PLAIT_NUMBER_FLOAT, rate));
	check(plait_sub_in_place(parameter, grad, 0));
	plait_tensor_release(grad);
	check(plait_grad_replace(parameter, 0));
}

static double step(plait_tensor x, plait_tensor y, const plait_tensor p[PARAMETERS]) {
	plait_tensor out = predict(x, p);
	plait_tensor loss = check(plait_mse_loss(out, y, 0, "mean"));
	backward(loss);
	int64_t mode = check(plait_grad_set(false));
	for (int i = 0; i < PARAMETERS; i++) {
		descend(p[i]);
	}
	check(plait_mode_set(mode));
	double value;
	check(plait_tensor_item(loss, &value));
	plait_tensor_release(out);
	plait_tensor_release(loss);
	return value;
}

static void train(void) {
	static const float cases[CASES][INPUTS] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
	static const float answers[CASES] = {0, 1, 1, 0};
	plait_tensor x = from(&cases[0][0], CASES, INPUTS), y = from(answers, CASES, 1);
	plait_tensor p[PARAMETERS] = {parameter(HIDDEN, INPUTS), parameter(0, HIDDEN), parameter(1, HIDDEN), parameter(0, 1)};
	double loss = 0;
	for (int i = 0; i < STEPS; i++) {
		loss = step(x, y, p);
	}
	if (!(loss < 0.01)) {
		fprintf(stderr, "the loss ended at %g\n", loss);
		exit(1);
	}
	float got[CASES];
	plait_tensor out = predict(x, p);
	check(plait_tensor_read(out, got, sizeof got));
	for (int i = 0; i < CASES; i++) {
		printf("%g ^ %g = %d\n", cases[i][0], cases[i][1], got[i] > 0.5F);
	}
	plait_tensor_release(out);
	plait_tensor_release(x);
	plait_tensor_release(y);
	for (int i = 0; i < PARAMETERS; i++) {
		plait_tensor_release(p[i]);
	}
}

static void errors(void) {
	static const float values[] = {1, 2, 3, 4, 5, 6};
	plait_tensor a = from(values, 2, 3), b = from(values, 2, 3);
	fails(plait_matmul(a, b), PLAIT_ERROR_SHAPE, "a product of 2x3 and 2x3");
	fails(plait_device_open("nothing:0"), PLAIT_ERROR_DEVICE, "a device that does not exist");
	fails(plait_sum(a, (int64_t[]){2}, 1, false, PLAIT_DEFAULT), PLAIT_ERROR_INDEX, "a sum over a third dimension");
	plait_tensor pair[2];
	fails(plait_max(a, 5, false, pair), PLAIT_ERROR_INDEX, "a maximum over a sixth dimension");
	plait_tensor_release(b);
	fails(plait_add(a, b, 0), PLAIT_ERROR_TYPE, "a released tensor");
	fails(plait_add(a, 12345, 0), PLAIT_ERROR_TYPE, "a number that is no handle");
	fails(plait_backward_step(a), PLAIT_ERROR_TYPE, "a tensor in the place of a pass");
	plait_tensor_release(b);
	plait_tensor_release(a);
}

// lists takes apart results that come as a list, and results written to an array.
static void lists(void) {
	static const float values[] = {3, 1, 2, 6, 5, 4};
	plait_tensor x = from(values, 2, 3), rows[2], sorted[2];
	plait_object list = check(plait_unbind(x, 0));
	if (plait_list_len(list) != 2) {
		fprintf(stderr, "unbind returned %lld rows\n", (long long)plait_list_len(list));
		exit(1);
	}
	check(plait_list_take(list, rows));
	check(plait_sort(rows[1], -1, false, false, sorted));
	float got[3];
	check(plait_tensor_read(sorted[0], got, sizeof got));
	printf("sorted %g %g %g\n", got[0], got[1], got[2]);
	plait_tensor all[] = {x, rows[0], rows[1], sorted[0], sorted[1]};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		plait_tensor_release(all[i]);
	}
}

int main(void) {
	check(plait_manual_seed(1));
	int64_t tensors = plait_tensor_count(), objects = plait_object_count();
	train();
	errors();
	lists();
	if (plait_tensor_count() != tensors || plait_object_count() != objects) {
		fprintf(stderr, "%lld tensors and %lld objects are left\n", (long long)(plait_tensor_count() - tensors),
				(long long)(plait_object_count() - objects));
		return 1;
	}
	char *version = plait_version();
	printf("plait %s\n", version);
	free(version);
	return 0;
}

#include "tests/unit/dit_reference.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/philox.hpp"
#include "worker/model/dit.hpp"

#undef CHECK  // LibTorch's
#include <doctest/doctest.h>

using namespace perdura;
using namespace perdura::worker;

namespace {

std::vector<float> normals(std::size_t count, std::uint32_t which, float deviation = 1.0F) {
  std::vector<float> v(count);
  kernels::fill_normal({7, 0, which, kernels::random_stream::canary}, v);
  for (float& x : v) x *= deviation;
  return v;
}

// Inputs of one pass, and parameters none of which is zero.
struct problem {
  problem(const dit_size& shape, std::int64_t rows, bool checkpoints = false)
      : size(shape), model(shape, checkpoints), batch(rows), slot(model.make_slot()) {
    at::set_num_threads(1);  // LibTorch's own threads would spin
    parameters = normals(model.parameter_count(), 1, 0.1F);
    const auto count = static_cast<std::size_t>(batch * size.image.count());
    noisy = normals(count, 2);
    target = normals(count, 3);
    for (std::int64_t i = 0; i < batch; ++i) {
      time.push_back(static_cast<float>(i + 1) / static_cast<float>(batch + 2));
      label.push_back(i * 3 % (size.classes + 1));
    }
    gradient.assign(model.parameter_count(), std::numeric_limits<float>::quiet_NaN());
    model.bind(parameters.data());
  }
  double run() {
    return loss_gradient(model, {noisy.data(), time.data(), label.data(), target.data(), batch}, *slot,
                         gradient.data());
  }
  std::vector<std::int64_t> image_sizes() const {
    return {batch, size.image.channels, size.image.height, size.image.width};
  }
  at::Tensor noisy_tensor() { return at::from_blob(noisy.data(), image_sizes()); }
  at::Tensor time_tensor() { return at::from_blob(time.data(), {batch}); }
  at::Tensor label_tensor() { return at::from_blob(label.data(), {batch}, at::kLong); }

  dit_size size;
  dit model;
  std::int64_t batch;
  std::unique_ptr<slot_values> slot;
  std::vector<float> parameters, noisy, time, target, gradient;
  std::vector<std::int64_t> label;
};

reference::weights doubles(const problem& p, bool differentiable) {
  reference::weights w;
  for (const parameter& q : p.model.parameters()) {
    const at::Tensor values = at::from_blob(const_cast<float*>(p.parameters.data() + q.first), q.shape);
    w[q.name] = values.to(at::kDouble).clone().set_requires_grad(differentiable);
  }
  return w;
}

at::Tensor reference_loss(problem& p, const reference::weights& w) {
  const at::Tensor out = reference::forward(p.size, w, p.noisy_tensor().to(at::kDouble),
                                            p.time_tensor().to(at::kDouble), p.label_tensor());
  const at::Tensor difference = out - at::from_blob(p.target.data(), p.image_sizes()).to(at::kDouble);
  return difference.square().sum() / static_cast<double>(p.size.image.count());
}

// Largest deviation of any parameter's derivative from autograd's, relative to the norm of that parameter's.
double worst_gradient_error(problem& p) {
  const double loss = p.run();
  const auto w = doubles(p, true);
  const at::Tensor expected = reference_loss(p, w);
  CHECK(loss == doctest::Approx(expected.item<double>()).epsilon(1e-5));
  expected.backward();
  double worst = 0;
  for (const parameter& q : p.model.parameters()) {
    const at::Tensor ours = at::from_blob(p.gradient.data() + q.first, q.shape).to(at::kDouble);
    const at::Tensor theirs = w.at(q.name).grad();
    const double error = (ours - theirs).norm().item<double>() / (theirs.norm().item<double>() + 1e-9);
    CAPTURE(q.name);
    CHECK(error < 1e-4);
    worst = std::max(worst, error);
  }
  return worst;
}

const dit_size job_size{{1, 28, 28}, 10, 128, 4, 2, 4, 512};
const dit_size odd_size{{3, 10, 15}, 4, 24, 2,
                        3,           5, 44};  // 6 tokens of 75 values: no multiple of a vector anywhere
const dit_size one_size{{1, 4, 4}, 1, 8, 1, 1, 4, 8};  // one token

}  // namespace

TEST_CASE("gradients agree with autograd's on the same network in double precision") {
  problem job(job_size, 3);
  CHECK(worst_gradient_error(job) < 1e-4);
  problem odd(odd_size, 5);
  CHECK(worst_gradient_error(odd) < 1e-4);
  problem one(one_size, 2);
  CHECK(worst_gradient_error(one) < 1e-4);
}

TEST_CASE("gradients agree with finite differences of the network in double precision") {
  problem p(odd_size, 4);
  p.run();
  const auto w = doubles(p, false);
  for (const parameter& q : p.model.parameters()) {
    const std::vector<float> along = normals(q.count, 9);
    const at::Tensor step = at::from_blob(const_cast<float*>(along.data()), q.shape).to(at::kDouble) * 1e-5;
    auto moved = w;
    moved[q.name] = w.at(q.name) + step;
    const double above = reference_loss(p, moved).item<double>();
    moved[q.name] = w.at(q.name) - step;
    const double below = reference_loss(p, moved).item<double>();
    double slope = 0, size = 0;
    for (std::uint64_t i = 0; i < q.count; ++i) {
      slope += static_cast<double>(p.gradient[q.first + i]) * static_cast<double>(along[i]);
      size += std::abs(static_cast<double>(p.gradient[q.first + i]) * static_cast<double>(along[i]));
    }
    CAPTURE(q.name);
    CHECK(std::abs((above - below) / 2e-5 - slope) < 1e-4 * size);
  }
}

TEST_CASE("the prediction agrees with the network in double precision") {
  for (const dit_size& size : {job_size, odd_size, one_size}) {
    problem p(size, 5);
    const at::Tensor ours =
        p.model.forward(p.noisy_tensor(), p.time_tensor(), p.label_tensor()).to(at::kDouble);
    const at::Tensor theirs = reference::forward(size, doubles(p, false), p.noisy_tensor().to(at::kDouble),
                                                 p.time_tensor().to(at::kDouble), p.label_tensor());
    CHECK((ours - theirs).norm().item<double>() < 1e-5 * theirs.norm().item<double>());
  }
}

TEST_CASE("a row's prediction has the same bits in any batch and at any place in it") {
  problem p(job_size, 37);
  const at::Tensor all = p.model.forward(p.noisy_tensor(), p.time_tensor(), p.label_tensor());
  const auto bytes = static_cast<std::size_t>(p.size.image.count()) * sizeof(float);
  for (const std::int64_t row : {0, 1, 15, 16, 36}) {
    const at::Tensor alone =
        p.model.forward(p.noisy_tensor().narrow(0, row, 1), p.time_tensor().narrow(0, row, 1),
                        p.label_tensor().narrow(0, row, 1));
    CHECK(std::memcmp(alone.const_data_ptr<float>(), all.const_data_ptr<float>() + row * p.size.image.count(),
                      bytes) == 0);
  }
}

TEST_CASE("a gradient has the same bits whatever was computed before") {
  problem p(odd_size, 5), q(odd_size, 5);
  p.run();
  const std::vector<float> first = p.gradient;
  problem larger(odd_size, 9);
  q.model.bind(q.parameters.data());
  q.model.forward(larger.noisy_tensor(), larger.time_tensor(), larger.label_tensor());
  q.run();
  CHECK(std::memcmp(first.data(), q.gradient.data(), first.size() * sizeof(float)) == 0);
  p.run();
  CHECK(std::memcmp(first.data(), p.gradient.data(), first.size() * sizeof(float)) == 0);
}

TEST_CASE("a NaN in an image reaches the loss and the gradient") {
  problem p(job_size, 2);
  p.noisy[100] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(p.run()));
  CHECK(std::isnan(p.gradient[p.model.parameters().back().first]));
}

TEST_CASE("parameters lie stage by stage without gaps") {
  const dit model(job_size);
  std::uint64_t next = 0;
  std::uint32_t stage = 0;
  for (const parameter& p : model.parameters()) {
    CHECK(p.first == next);
    CHECK((p.stage == stage || p.stage == stage + 1));
    next += p.count;
    stage = p.stage;
  }
  CHECK(next == model.parameter_count());
  CHECK(stage + 1 == model.stages());
  CHECK(model.parameter_count() == 1281680);
}

TEST_CASE("a new model predicts zero and depends on its seed alone") {
  dit model(job_size);
  std::vector<float> a(model.parameter_count(), 1.0F), b(model.parameter_count(), 2.0F),
      c(model.parameter_count());
  model.initialise(5, 0, a);
  model.initialise(5, 0, b);
  model.initialise(6, 0, c);
  CHECK(a == b);
  CHECK(a != c);
  problem p(job_size, 2);
  p.model.bind(a.data());
  const at::Tensor out = p.model.forward(p.noisy_tensor(), p.time_tensor(), p.label_tensor());
  CHECK(out.abs().max().item<float>() == 0.0F);
  p.run();
  CHECK(std::ranges::all_of(p.gradient, [](float g) { return std::isfinite(g); }));
}

TEST_CASE("any part of the initial parameters can be made alone") {
  const dit model(odd_size);
  std::vector<float> all(model.parameter_count());
  model.initialise(5, 0, all);
  for (const std::uint64_t size : {1, 7, 64, 1000}) {
    std::vector<float> parts(all.size());
    for (std::uint64_t at = 0; at < parts.size(); at += size)
      model.initialise(5, at, std::span(parts).subspan(at, std::min<std::uint64_t>(size, parts.size() - at)));
    CHECK(parts == all);
  }
}

TEST_CASE("a block that keeps its input alone has the same gradients, in less memory") {
  for (const dit_size& size : {job_size, odd_size, one_size}) {
    problem all(size, 3), input(size, 3, true);
    CHECK(all.run() == input.run());
    CHECK(std::memcmp(all.gradient.data(), input.gradient.data(), all.gradient.size() * sizeof(float)) == 0);
  }
  const dit all(job_size), input(job_size, true);
  CHECK(4 * input.slot_bytes(8) < all.slot_bytes(8));
}

TEST_CASE("in bfloat16 prediction and gradients stay near those of the same parameters in double precision") {
  for (const dit_size& size : {job_size, odd_size}) {
    problem p(size, 4);
    std::vector<kernels::bf16> halves(p.parameters.size());
    kernels::round_to_bf16(p.parameters, halves);
    std::ranges::transform(halves, p.parameters.begin(), kernels::float_of);
    p.run();
    const auto in_fp32 = p.gradient;
    p.model.bind(halves.data());
    const double loss = p.run();
    CHECK(p.gradient != in_fp32);
    const auto w = doubles(p, true);
    const at::Tensor expected = reference_loss(p, w);
    CHECK(loss == doctest::Approx(expected.item<double>()).epsilon(1e-2));
    expected.backward();
    for (const parameter& q : p.model.parameters()) {
      CAPTURE(q.name);
      const at::Tensor ours = at::from_blob(p.gradient.data() + q.first, q.shape).to(at::kDouble);
      const at::Tensor theirs = w.at(q.name).grad();
      CHECK((ours - theirs).norm().item<double>() < 2e-2 * (theirs.norm().item<double>() + 1e-9));
    }
  }
}

TEST_CASE("slots that go through the stages side by side do not disturb each other") {
  for (const bool checkpoints : {false, true}) {
    problem p(odd_size, 5, checkpoints), q(odd_size, 3, checkpoints);
    q.model.bind(p.parameters.data());
    q.noisy = normals(q.noisy.size(), 8);
    p.run();
    q.run();
    const auto alone_p = p.gradient, alone_q = q.gradient;
    const auto other = p.model.make_slot();
    const slot_rows rows_p{p.noisy.data(), p.time.data(), p.label.data(), p.target.data(), p.batch};
    const slot_rows rows_q{q.noisy.data(), q.time.data(), q.label.data(), q.target.data(), q.batch};
    const auto spans = spans_of(p.model.parameters());
    for (std::uint32_t s = 0; s < p.model.stages(); ++s) {
      p.model.forward_stage(s, rows_p, *p.slot);
      p.model.forward_stage(s, rows_q, *other);
    }
    p.model.loss(rows_q, *other);
    p.model.loss(rows_p, *p.slot);
    for (std::uint32_t s = p.model.stages(); s-- > 0;) {
      p.model.backward_stage(s, rows_p, *p.slot, p.gradient.data() + spans[s].first);
      p.model.backward_stage(s, rows_q, *other, q.gradient.data() + spans[s].first);
    }
    CHECK(p.gradient == alone_p);
    CHECK(q.gradient == alone_q);
  }
}

TEST_CASE("a stage needs no other stage's parameters while it runs") {
  problem p(odd_size, 3), q(odd_size, 3);
  p.run();
  const slot_rows rows{q.noisy.data(), q.time.data(), q.label.data(), q.target.data(), q.batch};
  const auto spans = spans_of(q.model.parameters());
  std::vector<float> gathered(q.parameters.size());
  q.model.bind(gathered.data());
  const auto alone = [&](std::uint32_t stage, auto run) {
    std::fill(gathered.begin(), gathered.end(), std::numeric_limits<float>::quiet_NaN());
    std::copy_n(q.parameters.begin() + static_cast<std::ptrdiff_t>(spans[stage].first), spans[stage].count,
                gathered.begin() + static_cast<std::ptrdiff_t>(spans[stage].first));
    run();
  };
  for (std::uint32_t s = 0; s < q.model.stages(); ++s)
    alone(s, [&] { q.model.forward_stage(s, rows, *q.slot); });
  q.model.loss(rows, *q.slot);
  for (std::uint32_t s = q.model.stages(); s-- > 0;)
    alone(s, [&] { q.model.backward_stage(s, rows, *q.slot, q.gradient.data() + spans[s].first); });
  CHECK(q.gradient == p.gradient);
}

TEST_CASE("sizes that do not fit are refused by the field's name") {
  job_config job;
  CHECK(make_denoiser(job).has_value());
  const auto refusal = [](const job_config& j) { return make_denoiser(j).failure().message; };
  job.model.kind = "unet";
  CHECK(refusal(job).find("\"dit\"") != std::string::npos);
  job = {};
  job.data.kind = "imagenet";
  CHECK(refusal(job).find("fashion-mnist") != std::string::npos);
  job = {};
  job.model.patch = 5;
  CHECK(refusal(job).find("model.patch = 5") != std::string::npos);
  job = {};
  job.model.heads = 3;
  CHECK(refusal(job).find("model.heads = 3") != std::string::npos);
  job = {};
  job.model.depth = 0;
  CHECK(refusal(job).find("model.depth = 0") != std::string::npos);
}

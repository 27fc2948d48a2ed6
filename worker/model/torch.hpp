// All of LibTorch that the model's and the sampler's files need: torch/torch.h costs 20 s a file, these two
// or three.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

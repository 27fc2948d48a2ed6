// What files that use LibTorch may include, precompiled once: narrow headers, for torch/torch.h costs 20 s a
// file.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

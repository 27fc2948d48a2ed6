# LibTorch out of PyPI's wheel (configs/install-deps puts it into build/libtorch). CPU only: libtorch_cpu and libc10
# alone; `find_package(Torch)` would want all of CUDA. Target: LibTorch::cpu.
if(NOT LIBTORCH_SITE)
  file(GLOB _sites "${PROJECT_SOURCE_DIR}/build/libtorch/lib/python3*/site-packages")
  list(GET _sites 0 _site)
  set(LIBTORCH_SITE "${_site}" CACHE PATH "site-packages folder that holds torch" FORCE)
endif()
find_library(LIBTORCH_CPU_LIBRARY torch_cpu PATHS "${LIBTORCH_SITE}/torch/lib" NO_DEFAULT_PATH)
find_library(LIBTORCH_C10_LIBRARY c10 PATHS "${LIBTORCH_SITE}/torch/lib" NO_DEFAULT_PATH)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LIBTORCH_CPU_LIBRARY LIBTORCH_C10_LIBRARY)
if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE "${LIBTORCH_SITE}/torch/include"
    "${LIBTORCH_SITE}/torch/include/torch/csrc/api/include")
  # libtorch_cpu wants libcupti.so.13 and libcudart.so.13 at run time: in the wheels beside it, or a CUDA toolkit.
  target_link_libraries(LibTorch::cpu INTERFACE "${LIBTORCH_CPU_LIBRARY}" "${LIBTORCH_C10_LIBRARY}")
  target_link_options(LibTorch::cpu INTERFACE "-Wl,--allow-shlib-undefined")
  set(LIBTORCH_RPATH "${LIBTORCH_SITE}/torch/lib;${LIBTORCH_SITE}/nvidia/cu13/lib")
endif()

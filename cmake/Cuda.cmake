# CUDA is optional: without nvcc everything but the GPU runner and its kernels builds.
# Sets PENSTOCK_HAVE_CUDA. The portable kernels are built for sm_80, sm_89 and sm_90; Hopper's own
# instructions (wgmma, TMA) need sm_90a, which files named *_sm90.cu are compiled for.
set(PENSTOCK_HAVE_CUDA OFF)
if(NOT PENSTOCK_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # CMake 3.25 does not know how nvcc 13 spells C++20.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA_ARCHITECTURES 80 89 90 CACHE STRING "GPU architectures of the portable kernels")
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 20)
    find_package(CUDAToolkit REQUIRED)
    set(PENSTOCK_HAVE_CUDA ON)
    if(PENSTOCK_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${PENSTOCK_CCACHE})
    endif()
  elseif(PENSTOCK_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PENSTOCK_CUDA=ON but nvcc was not found: put it on PATH or set CUDACXX")
  endif()
endif()
message(STATUS "CUDA runner: ${PENSTOCK_HAVE_CUDA}")

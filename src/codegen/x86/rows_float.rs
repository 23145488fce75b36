//! Vector instructions on floats. A row: name, operands, whether the legacy form overwrites an
//! operand, the operand that may be in memory, and the codes of the legacy form, of VEX with 16 and
//! 32 bytes, and of EVEX with 16, 32 and 64 bytes.

use super::inst::rows;

rows! {
    FLOATS
    ADDPS "www" tied Last:
        Addps_xmm_xmmm128 VEX_Vaddps_xmm_xmm_xmmm128 VEX_Vaddps_ymm_ymm_ymmm256
        EVEX_Vaddps_xmm_k1z_xmm_xmmm128b32 EVEX_Vaddps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er;
    MULPS "www" tied Last:
        Mulps_xmm_xmmm128 VEX_Vmulps_xmm_xmm_xmmm128 VEX_Vmulps_ymm_ymm_ymmm256
        EVEX_Vmulps_xmm_k1z_xmm_xmmm128b32 EVEX_Vmulps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er;
    DIVPS "www" tied Last:
        Divps_xmm_xmmm128 VEX_Vdivps_xmm_xmm_xmmm128 VEX_Vdivps_ymm_ymm_ymmm256
        EVEX_Vdivps_xmm_k1z_xmm_xmmm128b32 EVEX_Vdivps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er;
    MINPS "www" tied Last:
        Minps_xmm_xmmm128 VEX_Vminps_xmm_xmm_xmmm128 VEX_Vminps_ymm_ymm_ymmm256
        EVEX_Vminps_xmm_k1z_xmm_xmmm128b32 EVEX_Vminps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae;
    MAXPS "www" tied Last:
        Maxps_xmm_xmmm128 VEX_Vmaxps_xmm_xmm_xmmm128 VEX_Vmaxps_ymm_ymm_ymmm256
        EVEX_Vmaxps_xmm_k1z_xmm_xmmm128b32 EVEX_Vmaxps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae;
    ANDPS "www" tied Last:
        Andps_xmm_xmmm128 VEX_Vandps_xmm_xmm_xmmm128 VEX_Vandps_ymm_ymm_ymmm256
        EVEX_Vandps_xmm_k1z_xmm_xmmm128b32 EVEX_Vandps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vandps_zmm_k1z_zmm_zmmm512b32;
    ANDNPS "www" tied Last:
        Andnps_xmm_xmmm128 VEX_Vandnps_xmm_xmm_xmmm128 VEX_Vandnps_ymm_ymm_ymmm256
        EVEX_Vandnps_xmm_k1z_xmm_xmmm128b32 EVEX_Vandnps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vandnps_zmm_k1z_zmm_zmmm512b32;
    ORPS "www" tied Last:
        Orps_xmm_xmmm128 VEX_Vorps_xmm_xmm_xmmm128 VEX_Vorps_ymm_ymm_ymmm256
        EVEX_Vorps_xmm_k1z_xmm_xmmm128b32 EVEX_Vorps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vorps_zmm_k1z_zmm_zmmm512b32;
    XORPS "www" tied Last:
        Xorps_xmm_xmmm128 VEX_Vxorps_xmm_xmm_xmmm128 VEX_Vxorps_ymm_ymm_ymmm256
        EVEX_Vxorps_xmm_k1z_xmm_xmmm128b32 EVEX_Vxorps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vxorps_zmm_k1z_zmm_zmmm512b32;
    SQRTPS "ww" free Last:
        Sqrtps_xmm_xmmm128 VEX_Vsqrtps_xmm_xmmm128 VEX_Vsqrtps_ymm_ymmm256
        EVEX_Vsqrtps_xmm_k1z_xmmm128b32 EVEX_Vsqrtps_ymm_k1z_ymmm256b32
        EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er;
    CMPPS "wwwi" tied Last:
        Cmpps_xmm_xmmm128_imm8 VEX_Vcmpps_xmm_xmm_xmmm128_imm8 VEX_Vcmpps_ymm_ymm_ymmm256_imm8
        INVALID INVALID INVALID;
    KCMPPS "kwwi" free Last:
        INVALID INVALID INVALID EVEX_Vcmpps_kr_k1_xmm_xmmm128b32_imm8
        EVEX_Vcmpps_kr_k1_ymm_ymmm256b32_imm8 EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae;
    ROUNDPS "wwi" free Last:
        Roundps_xmm_xmmm128_imm8 VEX_Vroundps_xmm_xmmm128_imm8 VEX_Vroundps_ymm_ymmm256_imm8
        EVEX_Vrndscaleps_xmm_k1z_xmmm128b32_imm8 EVEX_Vrndscaleps_ymm_k1z_ymmm256b32_imm8
        EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae;
    SCALEFPS "www" free Last:
        INVALID INVALID INVALID EVEX_Vscalefps_xmm_k1z_xmm_xmmm128b32
        EVEX_Vscalefps_ymm_k1z_ymm_ymmm256b32 EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er;
    SCALEFPD "www" free Last:
        INVALID INVALID INVALID EVEX_Vscalefpd_xmm_k1z_xmm_xmmm128b64
        EVEX_Vscalefpd_ymm_k1z_ymm_ymmm256b64 EVEX_Vscalefpd_zmm_k1z_zmm_zmmm512b64_er;
    FMADD231PS "www" free Last:
        INVALID VEX_Vfmadd231ps_xmm_xmm_xmmm128 VEX_Vfmadd231ps_ymm_ymm_ymmm256
        EVEX_Vfmadd231ps_xmm_k1z_xmm_xmmm128b32 EVEX_Vfmadd231ps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er;
    FMADD213PS "www" free Last:
        INVALID VEX_Vfmadd213ps_xmm_xmm_xmmm128 VEX_Vfmadd213ps_ymm_ymm_ymmm256
        EVEX_Vfmadd213ps_xmm_k1z_xmm_xmmm128b32 EVEX_Vfmadd213ps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er;
    FMADD132PS "www" free Last:
        INVALID VEX_Vfmadd132ps_xmm_xmm_xmmm128 VEX_Vfmadd132ps_ymm_ymm_ymmm256
        EVEX_Vfmadd132ps_xmm_k1z_xmm_xmmm128b32 EVEX_Vfmadd132ps_ymm_k1z_ymm_ymmm256b32
        EVEX_Vfmadd132ps_zmm_k1z_zmm_zmmm512b32_er;
    ADDPD "www" tied Last:
        Addpd_xmm_xmmm128 VEX_Vaddpd_xmm_xmm_xmmm128 VEX_Vaddpd_ymm_ymm_ymmm256
        EVEX_Vaddpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vaddpd_ymm_k1z_ymm_ymmm256b64
        EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er;
    MULPD "www" tied Last:
        Mulpd_xmm_xmmm128 VEX_Vmulpd_xmm_xmm_xmmm128 VEX_Vmulpd_ymm_ymm_ymmm256
        EVEX_Vmulpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vmulpd_ymm_k1z_ymm_ymmm256b64
        EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er;
    DIVPD "www" tied Last:
        Divpd_xmm_xmmm128 VEX_Vdivpd_xmm_xmm_xmmm128 VEX_Vdivpd_ymm_ymm_ymmm256
        EVEX_Vdivpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vdivpd_ymm_k1z_ymm_ymmm256b64
        EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er;
    MINPD "www" tied Last:
        Minpd_xmm_xmmm128 VEX_Vminpd_xmm_xmm_xmmm128 VEX_Vminpd_ymm_ymm_ymmm256
        EVEX_Vminpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vminpd_ymm_k1z_ymm_ymmm256b64
        EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae;
    MAXPD "www" tied Last:
        Maxpd_xmm_xmmm128 VEX_Vmaxpd_xmm_xmm_xmmm128 VEX_Vmaxpd_ymm_ymm_ymmm256
        EVEX_Vmaxpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vmaxpd_ymm_k1z_ymm_ymmm256b64
        EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae;
    SQRTPD "ww" free Last:
        Sqrtpd_xmm_xmmm128 VEX_Vsqrtpd_xmm_xmmm128 VEX_Vsqrtpd_ymm_ymmm256
        EVEX_Vsqrtpd_xmm_k1z_xmmm128b64 EVEX_Vsqrtpd_ymm_k1z_ymmm256b64
        EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er;
    CMPPD "wwwi" tied Last:
        Cmppd_xmm_xmmm128_imm8 VEX_Vcmppd_xmm_xmm_xmmm128_imm8 VEX_Vcmppd_ymm_ymm_ymmm256_imm8
        INVALID INVALID INVALID;
    KCMPPD "kwwi" free Last:
        INVALID INVALID INVALID EVEX_Vcmppd_kr_k1_xmm_xmmm128b64_imm8
        EVEX_Vcmppd_kr_k1_ymm_ymmm256b64_imm8 EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae;
    ROUNDPD "wwi" free Last:
        Roundpd_xmm_xmmm128_imm8 VEX_Vroundpd_xmm_xmmm128_imm8 VEX_Vroundpd_ymm_ymmm256_imm8
        EVEX_Vrndscalepd_xmm_k1z_xmmm128b64_imm8 EVEX_Vrndscalepd_ymm_k1z_ymmm256b64_imm8
        EVEX_Vrndscalepd_zmm_k1z_zmmm512b64_imm8_sae;
    FMADD231PD "www" free Last:
        INVALID VEX_Vfmadd231pd_xmm_xmm_xmmm128 VEX_Vfmadd231pd_ymm_ymm_ymmm256
        EVEX_Vfmadd231pd_xmm_k1z_xmm_xmmm128b64 EVEX_Vfmadd231pd_ymm_k1z_ymm_ymmm256b64
        EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er;
    FMADD213PD "www" free Last:
        INVALID VEX_Vfmadd213pd_xmm_xmm_xmmm128 VEX_Vfmadd213pd_ymm_ymm_ymmm256
        EVEX_Vfmadd213pd_xmm_k1z_xmm_xmmm128b64 EVEX_Vfmadd213pd_ymm_k1z_ymm_ymmm256b64
        EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er;
    FMADD132PD "www" free Last:
        INVALID VEX_Vfmadd132pd_xmm_xmm_xmmm128 VEX_Vfmadd132pd_ymm_ymm_ymmm256
        EVEX_Vfmadd132pd_xmm_k1z_xmm_xmmm128b64 EVEX_Vfmadd132pd_ymm_k1z_ymm_ymmm256b64
        EVEX_Vfmadd132pd_zmm_k1z_zmm_zmmm512b64_er;
    CVTDQ2PS "ww" free Last:
        Cvtdq2ps_xmm_xmmm128 VEX_Vcvtdq2ps_xmm_xmmm128 VEX_Vcvtdq2ps_ymm_ymmm256
        EVEX_Vcvtdq2ps_xmm_k1z_xmmm128b32 EVEX_Vcvtdq2ps_ymm_k1z_ymmm256b32
        EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er;
    CVTTPS2DQ "ww" free Last:
        Cvttps2dq_xmm_xmmm128 VEX_Vcvttps2dq_xmm_xmmm128 VEX_Vcvttps2dq_ymm_ymmm256
        EVEX_Vcvttps2dq_xmm_k1z_xmmm128b32 EVEX_Vcvttps2dq_ymm_k1z_ymmm256b32
        EVEX_Vcvttps2dq_zmm_k1z_zmmm512b32_sae;
    CVTUDQ2PS "ww" free Last:
        INVALID INVALID INVALID EVEX_Vcvtudq2ps_xmm_k1z_xmmm128b32
        EVEX_Vcvtudq2ps_ymm_k1z_ymmm256b32 EVEX_Vcvtudq2ps_zmm_k1z_zmmm512b32_er;
    CVTTPS2UDQ "ww" free Last:
        INVALID INVALID INVALID EVEX_Vcvttps2udq_xmm_k1z_xmmm128b32
        EVEX_Vcvttps2udq_ymm_k1z_ymmm256b32 EVEX_Vcvttps2udq_zmm_k1z_zmmm512b32_sae;
    CVTPS2PD "wh" free Last:
        Cvtps2pd_xmm_xmmm64 VEX_Vcvtps2pd_xmm_xmmm64 VEX_Vcvtps2pd_ymm_xmmm128
        EVEX_Vcvtps2pd_xmm_k1z_xmmm64b32 EVEX_Vcvtps2pd_ymm_k1z_xmmm128b32
        EVEX_Vcvtps2pd_zmm_k1z_ymmm256b32_sae;
    CVTDQ2PD "wh" free Last:
        Cvtdq2pd_xmm_xmmm64 VEX_Vcvtdq2pd_xmm_xmmm64 VEX_Vcvtdq2pd_ymm_xmmm128
        EVEX_Vcvtdq2pd_xmm_k1z_xmmm64b32 EVEX_Vcvtdq2pd_ymm_k1z_xmmm128b32
        EVEX_Vcvtdq2pd_zmm_k1z_ymmm256b32_er;
    CVTUDQ2PD "wh" free Last:
        INVALID INVALID INVALID EVEX_Vcvtudq2pd_xmm_k1z_xmmm64b32
        EVEX_Vcvtudq2pd_ymm_k1z_xmmm128b32 EVEX_Vcvtudq2pd_zmm_k1z_ymmm256b32_er;
    CVTPD2PS "hw" free Last:
        Cvtpd2ps_xmm_xmmm128 VEX_Vcvtpd2ps_xmm_xmmm128 VEX_Vcvtpd2ps_xmm_ymmm256
        EVEX_Vcvtpd2ps_xmm_k1z_xmmm128b64 EVEX_Vcvtpd2ps_xmm_k1z_ymmm256b64
        EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er;
    CVTTPD2DQ "hw" free Last:
        Cvttpd2dq_xmm_xmmm128 VEX_Vcvttpd2dq_xmm_xmmm128 VEX_Vcvttpd2dq_xmm_ymmm256
        EVEX_Vcvttpd2dq_xmm_k1z_xmmm128b64 EVEX_Vcvttpd2dq_xmm_k1z_ymmm256b64
        EVEX_Vcvttpd2dq_ymm_k1z_zmmm512b64_sae;
    CVTTPD2UDQ "hw" free Last:
        INVALID INVALID INVALID EVEX_Vcvttpd2udq_xmm_k1z_xmmm128b64
        EVEX_Vcvttpd2udq_xmm_k1z_ymmm256b64 EVEX_Vcvttpd2udq_ymm_k1z_zmmm512b64_sae;
    CVTQQ2PD "ww" free Last:
        INVALID INVALID INVALID EVEX_Vcvtqq2pd_xmm_k1z_xmmm128b64
        EVEX_Vcvtqq2pd_ymm_k1z_ymmm256b64 EVEX_Vcvtqq2pd_zmm_k1z_zmmm512b64_er;
    CVTUQQ2PD "ww" free Last:
        INVALID INVALID INVALID EVEX_Vcvtuqq2pd_xmm_k1z_xmmm128b64
        EVEX_Vcvtuqq2pd_ymm_k1z_ymmm256b64 EVEX_Vcvtuqq2pd_zmm_k1z_zmmm512b64_er;
    CVTTPD2QQ "ww" free Last:
        INVALID INVALID INVALID EVEX_Vcvttpd2qq_xmm_k1z_xmmm128b64
        EVEX_Vcvttpd2qq_ymm_k1z_ymmm256b64 EVEX_Vcvttpd2qq_zmm_k1z_zmmm512b64_sae;
    CVTTPD2UQQ "ww" free Last:
        INVALID INVALID INVALID EVEX_Vcvttpd2uqq_xmm_k1z_xmmm128b64
        EVEX_Vcvttpd2uqq_ymm_k1z_ymmm256b64 EVEX_Vcvttpd2uqq_zmm_k1z_zmmm512b64_sae;
    CVTQQ2PS "hw" free Last:
        INVALID INVALID INVALID EVEX_Vcvtqq2ps_xmm_k1z_xmmm128b64
        EVEX_Vcvtqq2ps_xmm_k1z_ymmm256b64 EVEX_Vcvtqq2ps_ymm_k1z_zmmm512b64_er;
    CVTUQQ2PS "hw" free Last:
        INVALID INVALID INVALID EVEX_Vcvtuqq2ps_xmm_k1z_xmmm128b64
        EVEX_Vcvtuqq2ps_xmm_k1z_ymmm256b64 EVEX_Vcvtuqq2ps_ymm_k1z_zmmm512b64_er;
    CVTTPS2QQ "wh" free Last:
        INVALID INVALID INVALID EVEX_Vcvttps2qq_xmm_k1z_xmmm64b32
        EVEX_Vcvttps2qq_ymm_k1z_xmmm128b32 EVEX_Vcvttps2qq_zmm_k1z_ymmm256b32_sae;
    CVTTPS2UQQ "wh" free Last:
        INVALID INVALID INVALID EVEX_Vcvttps2uqq_xmm_k1z_xmmm64b32
        EVEX_Vcvttps2uqq_ymm_k1z_xmmm128b32 EVEX_Vcvttps2uqq_zmm_k1z_ymmm256b32_sae;
    CVTPH2PS "wh" free Last:
        INVALID VEX_Vcvtph2ps_xmm_xmmm64 VEX_Vcvtph2ps_ymm_xmmm128 EVEX_Vcvtph2ps_xmm_k1z_xmmm64
        EVEX_Vcvtph2ps_ymm_k1z_xmmm128 EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae;
    CVTPS2PH "hwi" free First:
        INVALID VEX_Vcvtps2ph_xmmm64_xmm_imm8 VEX_Vcvtps2ph_xmmm128_ymm_imm8
        EVEX_Vcvtps2ph_xmmm64_k1z_xmm_imm8 EVEX_Vcvtps2ph_xmmm128_k1z_ymm_imm8
        EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae;
    DIVSS "xxx" tied Last:
        Divss_xmm_xmmm32 VEX_Vdivss_xmm_xmm_xmmm32 INVALID EVEX_Vdivss_xmm_k1z_xmm_xmmm32_er
        INVALID INVALID;
    SQRTSS "xxx" tied Last:
        Sqrtss_xmm_xmmm32 VEX_Vsqrtss_xmm_xmm_xmmm32 INVALID EVEX_Vsqrtss_xmm_k1z_xmm_xmmm32_er
        INVALID INVALID;
    UCOMISS "xx" free Never:
        Ucomiss_xmm_xmmm32 VEX_Vucomiss_xmm_xmmm32 INVALID EVEX_Vucomiss_xmm_xmmm32_sae INVALID
        INVALID;
    CVTSI2SS "xxr" tied Last:
        Cvtsi2ss_xmm_rm32 VEX_Vcvtsi2ss_xmm_xmm_rm32 INVALID EVEX_Vcvtsi2ss_xmm_xmm_rm32_er
        INVALID INVALID;
    CVTSQ2SS "xxR" tied Last:
        Cvtsi2ss_xmm_rm64 VEX_Vcvtsi2ss_xmm_xmm_rm64 INVALID EVEX_Vcvtsi2ss_xmm_xmm_rm64_er
        INVALID INVALID;
    CVTUQ2SS "xxR" free Last:
        INVALID INVALID INVALID EVEX_Vcvtusi2ss_xmm_xmm_rm64_er INVALID INVALID;
    CVTTSS2SI "rx" free Last:
        Cvttss2si_r32_xmmm32 VEX_Vcvttss2si_r32_xmmm32 INVALID EVEX_Vcvttss2si_r32_xmmm32_sae
        INVALID INVALID;
    CVTTSS2SQ "Rx" free Last:
        Cvttss2si_r64_xmmm32 VEX_Vcvttss2si_r64_xmmm32 INVALID EVEX_Vcvttss2si_r64_xmmm32_sae
        INVALID INVALID;
    DIVSD "xxx" tied Last:
        Divsd_xmm_xmmm64 VEX_Vdivsd_xmm_xmm_xmmm64 INVALID EVEX_Vdivsd_xmm_k1z_xmm_xmmm64_er
        INVALID INVALID;
    SQRTSD "xxx" tied Last:
        Sqrtsd_xmm_xmmm64 VEX_Vsqrtsd_xmm_xmm_xmmm64 INVALID EVEX_Vsqrtsd_xmm_k1z_xmm_xmmm64_er
        INVALID INVALID;
    UCOMISD "xx" free Never:
        Ucomisd_xmm_xmmm64 VEX_Vucomisd_xmm_xmmm64 INVALID EVEX_Vucomisd_xmm_xmmm64_sae INVALID
        INVALID;
    CVTSI2SD "xxr" tied Last:
        Cvtsi2sd_xmm_rm32 VEX_Vcvtsi2sd_xmm_xmm_rm32 INVALID EVEX_Vcvtsi2sd_xmm_xmm_rm32_er
        INVALID INVALID;
    CVTSQ2SD "xxR" tied Last:
        Cvtsi2sd_xmm_rm64 VEX_Vcvtsi2sd_xmm_xmm_rm64 INVALID EVEX_Vcvtsi2sd_xmm_xmm_rm64_er
        INVALID INVALID;
    CVTUQ2SD "xxR" free Last:
        INVALID INVALID INVALID EVEX_Vcvtusi2sd_xmm_xmm_rm64_er INVALID INVALID;
    CVTTSD2SI "rx" free Last:
        Cvttsd2si_r32_xmmm64 VEX_Vcvttsd2si_r32_xmmm64 INVALID EVEX_Vcvttsd2si_r32_xmmm64_sae
        INVALID INVALID;
    CVTTSD2SQ "Rx" free Last:
        Cvttsd2si_r64_xmmm64 VEX_Vcvttsd2si_r64_xmmm64 INVALID EVEX_Vcvttsd2si_r64_xmmm64_sae
        INVALID INVALID;
}
